import { isControlToken, visibleText, withoutBidiControls } from "../../../specrace/ui/static/lib/pieces.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "control tokens are not part of the text": () => [
    ["<|im_end|>", "<|e2|>", " <|eot_id|>", "<s>", "</s>", "<pad>", "<｜end▁of▁sentence｜>", "<end_of_turn>"].filter(
      (piece) => !isControlToken(piece),
    ),
    [],
  ],
  "text that looks like a control token is text": () => [
    ["<b>", "a < b |> c", "s", "<|", " pad"].filter(isControlToken),
    [],
  ],
  "the text of a control token is empty": () => [
    [visibleText("<|im_end|>"), visibleText(undefined), visibleText(" cat")],
    ["", "", " cat"],
  ],
  "an answer loses control characters that change its direction": () => [
    withoutBidiControls("a\u202eb \u2067אב\u200f\n"),
    "ab אב\n",
  ],
  "a piece loses characters that reverse or break the line": () => [
    visibleText("a\u202eb\u0000c\r\n\n\td\u2028"),
    "abc\nd",
  ],
};
