// The JSON that the page gets from the server. Made by: python -m tests.measure.wire_types

/** The choices for a forecast: engines (name, title), GPUs, models' billions of parameters, cost curves, batches. */
export interface AdviceChoices {
  engines: [string, string][];
  gpus: string[];
  sizes: number[];
  curves: [string, string][];
  batches: number[];
}

/** The recommendation's figures on a category of requests, the best lane there, and what to do there. */
export interface AdviceGroup {
  lane: string;
  options: Record<string, any>;
  num_draft: number;
  tau: number;
  tau_low: number;
  tau_high: number;
  speedup: number;
  speedup_low: number;
  speedup_high: number;
  category: string;
  requests: number;
  advice: string;
  best: Recommendation;
}

/** The end of a race with the figures of its runs so far, as JSON; the latest part replaces those before it. */
export interface AgainMessage {
  kind: "again";
  race: number;
  parts: EndPart[];
}

/** The test of one draft token: its probabilities under the target (p) and the drafter (q), and a coin in [0, 1). */
export interface Check {
  p: number;
  q: number;
  coin: number;
}

/**
 * What the scripts know of the server before a race. `network_origin` is its URL on its network, or "".
 * `share_hours`: for how long it keeps a race under a short link; 0: it keeps none.
 */
export interface Constants {
  network_origin: string;
  share_hours: number;
  routes: Routes;
  max_documents: number;
  max_document_bytes: number;
  max_recording_bytes: number;
  max_question_characters: number;
  max_new_tokens: number;
  accepted_shown: number;
  rejected_shown: number;
  max_lanes: number;
  max_speedup_per_tau: number;
  other_hue: number;
}

/**
 * Where a lane first differs from vanilla: the target's two best tokens there, and the gap between them.
 * The gap is in logits; under sampling it is in logits over temperature, plus the noise that makes the draw
 * (`specrace.model.sampling`).
 */
export interface Difference {
  position: number;
  best: [string, string];
  gap: number;
}

/** The end of a race: that part of its reel, as JSON. */
export interface EndMessage {
  kind: "end";
  race: number;
  parts: EndPart[];
}

/** The end of a race (`finished`), or its figures after another run (`again`). */
export interface EndPart {
  phase: string;
  headline: string;
  results: ResultRow[];
  pace: ShownPace | null;
  repeated: ShownRepeated | null;
  finished?: Finished;
  again?: Repeated;
}

/** The advice for an engine, in figures and in words (`text`). */
export interface EngineAdvice {
  engine: string;
  title: string;
  export: EngineExport;
  recommendation: Recommendation;
  groups: AdviceGroup[];
  text: string[];
  not_tested: string[];
  batches: Record<string, any>[];
}

/** What to paste into an engine (`lab.advice.exports.base.Export`), and the figures of the lane that it is for. */
export interface EngineExport {
  lane: string;
  options: Record<string, any>;
  num_draft: number;
  tau: number;
  speedup: number;
  version: string;
  settings: string;
  synthetic: string;
  convention: string;
  files: Record<string, string>;
  notes: string[];
  requests: RequestEffect[];
}

/** What the stage of an exported file is drawn with: its first `num_offered` races play, or the tour opens. */
export interface ExportSettings {
  methods: MethodCard[];
  lanes: string[];
  num_offered: number;
  opens_tour: boolean;
}

/**
 * The end of a race: every lane has ended, or the race was `stopped`. `pace` is None in older recordings.
 * `cut`: the recording was truncated here, and the results were computed from the steps that it has.
 */
export interface Finished {
  type: "finished";
  lanes: LaneResult[];
  stopped: boolean;
  pace?: Pace | null;
  cut: boolean;
}

/**
 * A lane's frame after a step, without what the step's event says and what has not changed since the last frame.
 * `spans`: the parts of the passages that the accepted tokens were copied from, as (passage, start, end). `counts`: a
 * server's (steps, draft tokens, accepted draft tokens, tokens) so far, which its events do not always tell.
 */
export interface FrameChanges {
  meters: StepMeters;
  badge?: [string, string];
  sources?: number[];
  loops?: boolean;
  spans?: [number, number, number][];
  counts?: [number, number, number, number];
}

/** The start of a race: that part of its reel, the JSON that the page plays (`views.reel`). */
export interface HeadMessage {
  kind: "head";
  race: number;
  parts: HeadPart[];
}

/** The start of a race. */
export interface HeadPart {
  head: RaceHead;
  started: Started;
}

/**
 * A lane's state, and its text since its last frame: `runs` are pieces of text, not runs of the race.
 * `sources` counts its tokens by origin; see `frames`.
 * `draft` is None before the first step, and in a server's lane whose chunks are not steps. `sources` is empty in a
 * server's lane, because no server tells where its drafts come from.
 */
export interface LaneFrame {
  lane: number;
  runs: any[][];
  meters: LaneMeters;
  badge: [string, string];
  draft: ShownDraft | null;
  sources: number[];
  loops: boolean;
  end: string;
}

/**
 * A lane before its first step; `num_draft` is the most draft tokens of a step.
 * `verifier`: "match" or "rejection". `build_ms`: the time to build the drafter's tables for this request, which is on
 * the lane's clock. `shared_ms`: the time spent so far on tables of the documents and of earlier answers, which a
 * server would build once for all requests. `prefill_ms`: the time in which a draft model read the prompt, or a server
 * answered with its first token. These two times are on no clock, like the target's prefill. `served`: not None if a
 * server decoded it. `reference`: the server's lane with which this lane is compared, itself if it is that lane; "" if
 * it is compared with vanilla.
 */
export interface LaneInfo {
  lane: string;
  title: string;
  num_draft: number;
  options: Record<string, any>;
  build_ms: number;
  verifier: string;
  prefill_ms: number;
  shared_ms: number;
  served: Served | null;
  reference: string;
}

/**
 * A lane's figures so far, or at the end; `ms` is the time on the lane's own clock, `tau` the tokens per step.
 * `accepted` and `drafted` count draft tokens.
 */
export interface LaneMeters {
  speedup: number;
  tokens_per_s: number;
  tau: number;
  tokens: number;
  steps: number;
  ms: number;
  accepted: number;
  drafted: number;
}

/**
 * A lane's final metrics. `note`: why the lane was not compared with vanilla.
 * `tau`: tokens per step. `loop_tokens`: the length of the loop in which the output ends; 0 if it ends in none.
 * Of a lane that a server decoded, `speedup` is 0, because its time is not race time, and figures that the server did
 * not report are 0, too. `differs_at`: the first token that differs from the lane's reference, if that is not vanilla;
 * in a text without token ids, the first character.
 */
export interface LaneResult {
  lane: string;
  tokens: number;
  steps: number;
  tau: number;
  drafted_per_step: number;
  acceptance_rate: number;
  decode_ms: number;
  tokens_per_s: number;
  speedup: number;
  identical: boolean | null;
  first_difference: Difference | null;
  end: string;
  loop_tokens: number;
  text: string;
  note: string;
  differs_at: number | null;
}

/**
 * A lane's speedup over several runs: median, minimum (`low`) and maximum (`high`); `tokens_per_s` is a median.
 * `slowest` and `fastest`: the range of the tokens per second of a lane that a server decoded, which has no speedup.
 */
export interface LaneSpread {
  lane: string;
  speedup: number;
  low: number;
  high: number;
  tokens_per_s: number;
  slowest: number;
  fastest: number;
}

/**
 * The answer to a question of a list (*Questions*). `id` is random, so that no two messages are alike.
 * `phase` is "waiting" if the race can be watched by its `key`, "busy" if a limit is reached for now (`message` says
 * which one), or "refused" (`message` says why).
 */
export interface ListedMessage {
  kind: "listed";
  id: string;
  phase: string;
  key: string;
  message: string;
}

/** What a log recommends. `tried`: a setting's (lane, options, draft tokens, requests, tokens per step, speedup). */
export interface LogAdvice {
  engines: EngineAdvice[];
  requests: number;
  scored: number;
  looping: number;
  left_out: string;
  remarks: string[];
  tried: [string, Record<string, any>, number, number, number, number][];
}

/** The choices for scoring a log: tokenizers, lanes (ours, engines', those ticked at first), formats and limits. */
export interface LogChoices {
  tokenizers: string[];
  lanes: string[];
  engines: string[];
  chosen: string[];
  formats: string[];
  limits: LogLimits;
  advice: AdviceChoices;
}

/** A lane's figures on a category of requests or on "all", as `score --json` prints them; `tau`: tokens per step. */
export interface LogGroup {
  lane: string;
  category: string;
  outputs: number;
  looping: number;
  tokens: number;
  steps: number;
  tau: number;
  tau_without_looping: number | null;
  drafted_per_step: number;
  acceptance_rate: number;
  draft_ms_per_step: number;
  build_ms_per_output: number;
  num_draft: number;
  scored: string;
}

/**
 * A lane's figures on a log.
 * `emitted`[i]: steps that emitted i tokens. `drafted`[i]: steps whose draft was deeper than i tokens. `accepted`[i]:
 * steps that accepted more than i. `tau_low` to `tau_high`: the interval of the tokens per step. `tenths`: for each
 * tenth of the outputs its steps, those whose draft was rejected at its first token, and those without a draft.
 * `scored`: "whole", or which part of the method can be scored without its model.
 */
export interface LogLane {
  lane: string;
  num_draft: number;
  scored: string;
  emitted: number[];
  drafted: number[];
  accepted: number[];
  tau_low: number | null;
  tau_high: number | null;
  tenths: [number, number, number][];
}

/** Bounds on a log that the page scores: bytes of the file, requests, seconds, lanes. */
export interface LogLimits {
  bytes: number;
  requests: number;
  seconds: number;
  lanes: number;
}

/** A line of the answer to a log: the progress, then the scores, the advice, or an error as a sentence. */
export interface LogLine {
  progress?: LogProgress;
  scores?: ScoredLog;
  advice?: LogAdvice;
  error?: string;
}

/**
 * How far the work on a log is.
 * While it is read: its requests so far, and perhaps the share of the file. While settings are tried: `done` of
 * `cells`, each of which is one of the `settings` on some of the `requests`.
 */
export interface LogProgress {
  requests: number;
  share?: number;
  settings?: number;
  done?: number;
  cells?: number;
}

/** A request of a log, token by token. `lanes`: each lane's steps, (accepted, drafted, texts of rejected tokens). */
export interface LogRequest {
  number: number;
  id: string;
  category: string;
  looping: boolean;
  tokens: number;
  prompt_tokens: number;
  tau: number[];
  prompt: string;
  texts: string[];
  lanes: [number, number, string[]][][];
}

/** What engines counted on `outputs` requests of a category: tokens per step, between `tau` and `tau_high`. */
export interface MeasuredGroup {
  category: string;
  outputs: number;
  tau: number;
  tau_high: number;
}

/** What the page knows of a method before a race. `hue` is the number of its colour. */
export interface MethodCard {
  lane: string;
  title: string;
  summary: string;
  hue: number;
}

/** `facts` by name, `rows` of tokens, and `counts`: one for each node of the tree (0 for the root), or none. */
export interface Note {
  facts: Record<string, number | string>;
  rows: NoteRow[];
  counts: number[];
}

/** Why a race has not started yet, or did not finish. With `race` 0: what is wrong with the page's address. */
export interface NoteMessage {
  kind: "note";
  race: number;
  phase: string;
  message: string;
}

/**
 * Tokens with a `label`, for example a row of a window or the likeliest continuations.
 * `group`: the heading above all rows with the same group. `counts` has one entry for each token or is empty; `after`
 * is the context under which the row was found. `pieces`, the text of each token, and `after_text`, the text of
 * `after`, are filled in by a caller that has the tokenizer.
 */
export interface NoteRow {
  group: string;
  label: string;
  tokens: number[];
  counts: number[];
  after: number[];
  pieces: string[];
  after_text: string;
}

/** A poll of the audience: its code, the key that controls it, its link, and the link's QR code, rows of 0 and 1. */
export interface OpenedPoll {
  code: string;
  key: string;
  link: string;
  qr: string[];
}

/**
 * How steady the machine was (`specrace.engine.pace`); `note` is the summary in a sentence.
 * `probes` forwards were timed between steps. `probe_ms` is the latency of one before the first step, and `low` and
 * `high` are the range of the slowdown relative to it. `jumps`: the share of probes that no steady pace explains.
 * `waited_ms`: the time lanes waited for a processor, which is on no clock. `threads`: the number of threads of a
 * forward at the end. `disturbed`: the machine was too unsteady for the metrics to be used.
 */
export interface Pace {
  probes: number;
  probe_ms: number;
  low: number;
  high: number;
  jumps: number;
  waited_ms: number;
  threads: number;
  disturbed: boolean;
  note: string;
}

/** Why a poll's request is refused, in a sentence. */
export interface PollError {
  error: string;
}

/**
 * What the stage and a phone show of a poll. `mine` is this phone's vote; `wait_ms`: when to ask again.
 * `hues`: the number of each lane's colour.
 */
export interface PollState {
  round: number;
  question: string;
  lanes: string[];
  hues: number[];
  open: boolean;
  winner: number | null;
  counts: number[];
  mine: number | null;
  wait_ms: number;
}

/** A recorded race that the page offers, with facts from its recording; `ms`: the race time of its last step. */
export interface RaceCard {
  name: string;
  question: string | null;
  date: string | null;
  model: string | null;
  parameters: number | null;
  dtype: string | null;
  device: string | null;
  lanes: string[];
  fastest: string;
  speedup: number;
  temperature: number;
  ms: number;
}

/**
 * A race's description: the question, the model, the lanes, the passages. A fact that was not recorded is None.
 * `engine`: how forwards ran, such as "CUDA graphs". `thinking`: "on" if the model was asked to think. `thoughts`: the
 * marks before and after the thoughts in a text; the first is "" if a text begins with thoughts.
 */
export interface RaceHead {
  question: string | null;
  date: string | null;
  model: string | null;
  parameters: number | null;
  dtype: string | null;
  device: string | null;
  engine: string | null;
  threads: number | null;
  retrieve_ms: number | null;
  settings: Record<string, any> | null;
  thinking: string | null;
  thoughts: [string, string] | null;
  prompt_tokens: number;
  prefill_ms: number;
  cost_curve: ShownCurve | null;
  lanes: ShownLane[];
  passages: ShownPassage[];
  servers_left_out: string[] | null;
}

/** A lane and its settings, with the forecast of its tokens per step and its speedup, and their intervals. */
export interface Recommendation {
  lane: string;
  options: Record<string, any>;
  num_draft: number;
  tau: number;
  tau_low: number;
  tau_high: number;
  speedup: number;
  speedup_low: number;
  speedup_high: number;
}

/** A recorded race as the JSON of its reel, or why there is none. */
export interface RecordedAnswer {
  reel?: string;
  error?: string;
}

/** A whole race: the fields of its parts, with `steps` in race time. `race` is its number on its page. */
export interface Reel {
  phase: string;
  headline: string;
  results: ResultRow[];
  pace: ShownPace | null;
  repeated: ShownRepeated | null;
  finished?: Finished;
  again?: Repeated;
  race: number;
  head: RaceHead;
  started: Started;
  steps: StepPart[];
}

/**
 * The metrics of a race that was run several times; each such event replaces the one before it.
 * `runs`: the number of runs that these metrics come from, the first included. Only undisturbed runs count, unless all
 * were disturbed. `disturbed`: too few runs were undisturbed, so the metrics do not count. `note`: the summary in a
 * sentence.
 */
export interface Repeated {
  type: "repeated";
  runs: number;
  lanes: LaneSpread[];
  disturbed: boolean;
  note: string;
}

/** What an engine does differently with requests that set one of these `options`, and how many requests do. */
export interface RequestEffect {
  options: string[];
  requests: number;
  share: number;
  effect: string;
  sentence: string;
}

/**
 * A row of the results table. `speedup` is not rounded: the page rounds it to the figure in the headline.
 * `measured`: how a server's lane was measured, in a sentence or two; "" for our own lanes. A server's lane has no
 * speedup (0), and a count of 0 in it was not reported.
 */
export interface ResultRow {
  speedup: number;
  tokens_per_s: number;
  tau: number;
  tokens: number;
  steps: number;
  ms: number;
  accepted: number;
  drafted: number;
  lane: string;
  title: string;
  drafted_per_step: number;
  end: string;
  loops: boolean;
  badge: [string, string];
  measured: string;
}

/** Routes relative to the page, which a proxy may serve below a path. */
export interface Routes {
  race: string;
  recording: string;
  shared: string;
  export: string;
  logs: string;
  advice: string;
  audience: string;
  poll_state: string;
  poll_vote: string;
}

/**
 * The scores of a log, and some of its requests. `left_out`: why the rest was not scored, or "".
 * `measured`: what the engine that answered counted, with `measured_text` in words; empty without counts in the log.
 */
export interface ScoredLog {
  format: string;
  title: string;
  tokenizer: string;
  left_out: string;
  skipped: number;
  skipped_by_reason: [string, number][];
  remarks: string[];
  groups: LogGroup[];
  outputs: number;
  looping: number;
  lanes: LogLane[];
  measured: MeasuredGroup[];
  measured_text: string[];
  requests: LogRequest[];
}

/**
 * One forward's output: `targets` [N], the target's token at every node; `top` [N, k], the k likeliest, or None.
 * Raises InputError if a target is NO_TOKEN, because every lane would print the same nonsense.
 */
export interface Scores {
  targets: number[];
  top: number[][] | null;
}

/**
 * What is known about a lane that a server decoded; its times are those that the client saw, network included.
 * `engine` and `model`: software with its version, and the model's name, as the server gave them. `chunks_are_steps`:
 * each streamed chunk held the tokens of one step. If not, `note` says why, and only `steps`, `drafted` and
 * `accepted`, the server's own totals, are known; each is None where the server did not report it. `first_tokens`: the
 * number of tokens in the first chunk, which arrived before the lane's clock started.
 * `sends_ids`: the server streams token ids. If not, each chunk is a `Step` without tokens, with the chunk's text, and
 * `tokens` is the server's own count for the whole answer, or None; `first_tokens` is then 0 unless each chunk had one
 * token. `together`: the race's servers answered at the same time.
 */
export interface Served {
  engine: string;
  model: string;
  chunks_are_steps: boolean;
  first_tokens: number;
  steps: number | null;
  drafted: number | null;
  accepted: number | null;
  note: string;
  sends_ids: boolean;
  tokens: number | null;
  together: boolean;
}

/** The machine's cost curve: the cost `ratio` of a forward over each number of `rows`, after `context` tokens. */
export interface ShownCurve {
  rows: number[];
  ratio: number[];
  context: number | null;
}

/**
 * A step's draft: its size, the texts of the last accepted tokens, and those of the first rejected branch's tokens.
 * `drafted` is None in a step of a server that did not report it.
 */
export interface ShownDraft {
  step: number;
  drafted: number | null;
  accepted: number;
  accepted_texts: string[];
  rejected: string[];
}

/**
 * A lane before its first step; the times are those of `LaneInfo`, rounded.
 * `served`: what is known about the server that decoded it; None in our own lanes. `reference` is that of `LaneInfo`.
 */
export interface ShownLane {
  lane: string;
  title: string;
  num_draft: number;
  build_ms: number;
  shared_ms: number;
  prefill_ms: number;
  served: Served | null;
  reference: string;
}

/** Whether the machine was disturbed, or a note that the recording is cut off. */
export interface ShownPace {
  disturbed: boolean;
  note: string;
}

/** A retrieved passage: its text, its score, and its evidence as (start, end, rank). */
export interface ShownPassage {
  title: string;
  document: string;
  place: string;
  score: number;
  text: string;
  evidence: [number, number, number][];
}

/** The speedups over several runs, each lane's as (median, minimum, maximum). */
export interface ShownRepeated {
  disturbed: boolean;
  note: string;
  runs: number;
  lanes: [number, number, number][];
}

/**
 * What the stage is drawn with. `lanes` are shown before a race; `takes_files`: whether visitors may open files.
 * While no visitor acts, the first `num_offered` races of the gallery play.
 */
export interface StageSettings {
  methods: MethodCard[];
  lanes: string[];
  gallery: RaceCard[];
  only_replay: boolean;
  takes_files: boolean;
  num_offered: number;
}

/** The start of a race; `about` holds the question, model, dtype, device, versions, settings and passages. */
export interface Started {
  type: "started";
  format: 1;
  lanes: LaneInfo[];
  prompt_tokens: number;
  prefill_ms: number;
  about: Record<string, any>;
}

/** The line about the model; `state` is "loading", "ready" or "failed". */
export interface Status {
  state: string;
  text: string;
}

/**
 * One step of one lane; `at_ms` is the race time at its end.
 * `emitted`: the accepted path and the bonus token, cut at the end-of-text token and at the length limit. `end`: why
 * the lane ends with this step ("eos" or "length"); "" if it does not. `texts` has one entry for each emitted token
 * (joined, they are the printed text), `pieces` the text of each node's token by itself; both are added by a caller
 * that has the tokenizer.
 * `drafted`: the number of draft tokens of a server's step, whose tree lacks the rejected ones; None if the server did
 * not report it, and in our own lanes, whose trees have all of them.
 * `checks`, under rejection sampling only: p, q and the coin of each test; a chain has one for each draft token up to
 * the first rejected one, a tree one for each draw that was tried. `checked_nodes`: the node of each test in a tree;
 * None for a chain. `note`: the drafter's details.
 */
export interface Step {
  type: "step";
  lane: string;
  index: number;
  at_ms: number;
  tree: TokenTree;
  verdict: Verdict;
  emitted: number[];
  timing: Timing;
  end: string;
  texts: string[];
  pieces: string[];
  checks?: Check[] | null;
  checked_nodes?: number[] | null;
  note?: Note | null;
  drafted?: number | null;
}

/** Steps of a race: those parts of its reel, as JSON. */
export interface StepMessage {
  kind: "step";
  race: number;
  parts: StepPart[];
}

/** The figures of LaneMeters that the page cannot count itself. */
export interface StepMeters {
  speedup: number;
  tokens_per_s: number;
  tau: number;
  ms: number;
}

/** A step of a race. */
export interface StepPart {
  event: Step;
  frame: FrameChanges;
}

/** Questions about the documents in use, for a list. `id` is random, so that no two messages are alike. */
export interface SuggestedMessage {
  kind: "suggested";
  id: string;
  questions: string[];
  message: string;
}

/** The parts of a step's time, in milliseconds. */
export interface Timing {
  draft_ms: number;
  target_ms: number;
  keep_ms: number;
}

/**
 * N nodes, parents before their children. Node 0 is the root, the pending token; the others are the draft.
 * `tokens` and `parents` have N entries; `parents[0] == -1` and `parents[i] < i`; siblings have distinct tokens.
 * `probs`, optional: the drafter's estimate of each node's probability given its parent. `positions`, optional: the
 * index in prompt and output that each node's token was copied from, -1 for none. Raises ValueError if one of these
 * rules is broken.
 */
export interface TokenTree {
  tokens: number[];
  parents: number[];
  probs: number[] | null;
  positions: number[] | null;
}

/** `path`: the accepted nodes, the root first; `bonus`: the target's token after them. */
export interface Verdict {
  path: number[];
  bonus: number;
  scores: Scores;
}

/** A race of this page is in line; the page can watch it by its key. `server`: an id, new at each server's start. */
export interface WatchMessage {
  kind: "watch";
  race: number;
  key: string;
  server: string;
}
