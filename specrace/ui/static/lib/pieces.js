// The visible text of tokens, without control tokens such as <|im_end|> and without controls of the writing direction.
const CONTROL = /^\s*(?:<[|｜][^<>]{1,60}[|｜]>|<\/?(?:s|pad|unk|bos|eos|mask|start_of_turn|end_of_turn)>)\s*$/iu;
const UNSEEN = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/gu;

// Characters that change the direction of the text after them, even of the page's text around the answer.
const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

// Removes these characters, so that only the letters themselves determine the direction.
export function withoutBidiControls(text) {
  return text.replace(BIDI_CONTROLS, "");
}

export function isControl(piece) {
  return CONTROL.test(piece);
}

// The visible text of one token; "" if there is none.
export function readPiece(piece = "") {
  if (isControl(piece)) return "";
  return piece
    .replace(/[\t\n\r]+/gu, (blank) => (blank.includes("\n") ? "\n" : " "))
    .replace(UNSEEN, (character) => (character === "\n" ? character : ""));
}
