import {
  countOf,
  describeClocks,
  describeRange,
  describeRecording,
  recordingParts,
  formatFigure,
  formatPercent,
  formatSeconds,
  formatTime,
  shorten,
  formatSpeedup,
} from "../../../specrace/ui/static/lib/format.js";

const ABOUT = { model: "tiny", parameters: 7.6e6, dtype: "float32", device: "cpu", date: "2026-01-02T03:04" };

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "which clocks time the lanes": () => {
    const served = (together) => ["a", "b"].map((lane) => ({ lane, served: { together } }));
    return [
      [describeClocks([{ lane: "vanilla" }]), describeClocks(served(false)), describeClocks(served(true))],
      [
        "race time: lanes take turns",
        "race time, but not for servers: a, b measured as the client saw it",
        "race time, but not for servers: a, b measured as the client saw it, all at once",
      ],
    ];
  },
  "a time": () => [formatSeconds(1234), "1.23 s"],
  "a lane's short time is in milliseconds": () => [
    [28.84, 99.94, 99.96].map(formatTime),
    ["28.8 ms", "99.9 ms", "0.10 s"],
  ],
  "a speedup has one decimal, rounded half up": () => [
    [0, 1.04, 1.05, 1.25, 1.336, 2.4496, 12.95].map(formatSpeedup),
    ["0.0×", "1.0×", "1.1×", "1.3×", "1.3×", "2.4×", "13.0×"],
  ],
  "larger shares have fewer digits": () => [[0.5, 0.0123, 0.0001].map(formatPercent), ["50 %", "1.2 %", "<0.1 %"]],
  figures: () => [[123.4, 0.12345, 0].map(formatFigure), ["123", "0.123", "0"]],
  "the range and the runs of a figure": () => {
    const repeated = {
      runs: 5,
      lanes: [
        [1, 1, 1],
        [2.44, 2.2, 2.65],
        [1.9, 1.88, 1.94],
      ],
    };
    const ranges = [0, 1, 2].map((lane) => describeRange(repeated, lane));
    // A range whose ends are shown alike is left out.
    return [
      [ranges, describeRange(null, 1)],
      [["", "2.2 to 2.7, 5 runs", ""], ""],
    ];
  },
  "a noun in the singular and the plural": () => [
    [0, 1, 2].map((count) => countOf(count, "token")),
    ["0 tokens", "1 token", "2 tokens"],
  ],
  "blank tokens become visible signs": () => [
    ["\n ", "  ", "", " cat "].map((piece) => shorten(piece)),
    ["↵", "␣", "·", "cat"],
  ],
  "a long token is cut between characters": () => [shorten("🦉".repeat(20), 5), "🦉🦉🦉🦉…"],
  "a recording's model, machine and date": () => [
    [describeRecording(ABOUT), recordingParts({ ...ABOUT, date: undefined })],
    ["tiny · 7.6M · float32 · cpu · recorded 2026-01-02", { model: "tiny · 7.6M", how: "float32 · cpu", day: "" }],
  ],
  "a recording without these facts": () => [describeRecording({}), ""],
};
