// The visible text of tokens, without control tokens such as <|im_end|> and without characters that control the writing
// direction.

// Matches a token such as <|im_end|>, with ASCII or full-width bars, or such as </s>, perhaps between blanks.
const CONTROL_TOKEN = /^\s*(?:<[|｜][^<>]{1,60}[|｜]>|<\/?(?:s|pad|unk|bos|eos|mask|start_of_turn|end_of_turn)>)\s*$/iu;
// Matches control characters, halves of surrogate pairs, and characters that direct the text or are no characters.
const INVISIBLE = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/gu;

// Characters that change the direction of the text after them, even of the page's text around the answer.
const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

// Removes characters that change the direction, so that only the letters determine it.
export function withoutBidiControls(text) {
  return text.replace(BIDI_CONTROLS, "");
}

export function isControlToken(piece) {
  return CONTROL_TOKEN.test(piece);
}

// The visible text of one token; "" if there is none.
export function visibleText(piece = "") {
  if (isControlToken(piece)) return "";
  return piece
    .replace(/[\t\n\r]+/gu, (blank) => (blank.includes("\n") ? "\n" : " "))
    .replace(INVISIBLE, (character) => (character === "\n" ? character : ""));
}
