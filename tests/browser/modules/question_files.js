import { CONSTANTS } from "../../../specrace/ui/static/lib/constants.js";
import {
  findProblem,
  MAX_QUESTIONS,
  readLines,
  readQuestionFile,
  readTable,
  tidyQuestions,
} from "../../../specrace/ui/static/questions/question_files.js";
import { HOSTILE } from "./fixtures.js";

const read = (name, text) => readQuestionFile(new File([text], name)).catch((error) => error.message);

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "typed questions, one a line": () => [readLines(" Why?\r\n\n How? \n"), ["Why?", "How?"]],
  "a table with quotes, separators and line breaks in its cells": () => [
    readTable('a,"b, ""c""\nd",\r\ne,f,g', ","),
    [
      ["a", 'b, "c"\nd', ""],
      ["e", "f", "g"],
    ],
  ],
  "the questions of a file": async () => [
    [
      await read("a.txt", "\uFEFFWhy?\nHow?"),
      await read("a.csv", 'id,Question\n1,"Why, then?"\n2,\n'),
      await read("a.csv", "Why?\nHow?\n"),
      await read("a.tsv", "prompt\tid\nWhy?\t1"),
      await read("a.jsonl", `{"question": "Why?"}\n\n${JSON.stringify({ prompt: HOSTILE })}\n"How?"\n`),
    ],
    [["Why?", "How?"], ["Why, then?"], ["Why?", "How?"], ["Why?"], ["Why?", HOSTILE.trim(), "How?"]],
  ],
  "what is wrong with a file, in a sentence": async () => [
    [
      await read("a.csv", "id,text\n1,Why?"),
      await read("a.csv", 'question\n"Why?'),
      await read("a.jsonl", '{"question": "Why?"}\n{'),
      await read("a.jsonl", '{"text": "Why?"}'),
      await read("a.pdf", "%PDF"),
      await read("a.txt", "x".repeat(1_000_001)),
    ],
    [
      "a.csv: its columns are id, text; name one of them question.",
      "a.csv: row 2 has a quote that is not closed.",
      "a.jsonl: line 2 is not JSON.",
      'a.jsonl: line 1 has no question; write {"question": "..."}.',
      "a.pdf: it is no list of questions; give .txt, .csv, .tsv or .jsonl.",
      "a.txt is larger than 1 MB; give a shorter list.",
    ],
  ],
  "repeated questions and line breaks": () => [
    tidyQuestions(["Why\nso?", " Why so?", "", "How?"]),
    ["Why so?", "How?"],
  ],
  "lists that cannot be raced": () => [
    [
      findProblem([]).slice(0, 29),
      findProblem(Array.from({ length: MAX_QUESTIONS + 1 }, String)),
      findProblem(["Why?", "x".repeat(CONSTANTS.max_question_characters + 1)]),
      findProblem(["Why?"]),
    ],
    [
      "Type a question on each line,",
      "101 questions are too many for this page; race at most 100.",
      "Question 2 has 2001 characters; ask one of at most 2000.",
      "",
    ],
  ],
};
