import { drawPreview } from "../../../specrace/ui/static/inspector/preview.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "each part of a step, with the signs in it and what they stand for": () => {
    const parts = drawPreview();
    const words = (part, name) => [...part.querySelectorAll(name)].map((node) => node.textContent);
    return [
      [
        parts.map((part) => [part.querySelector("h3").textContent, words(part, "dt")]),
        parts.flatMap((part) => words(part, "dd")).every((text) => /^\S.+\.$/.test(text)),
      ],
      [
        [
          ["Draft tree", ["accepted", "rejected", "never reached", "model's own"]],
          ["Time of this step", ["draft", "model", "cache"]],
          ["Attention mask", []],
          ["Drafter details", []],
        ],
        true,
      ],
    ];
  },
};
