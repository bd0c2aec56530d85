// The stage: takes a live race's frames in, in order, or a reel, and hands each lane its part. Text from outside goes
// through textContent only. On the .stage element it tells others "begun" (a live race, or a replay, starts), "step"
// (the latest one of the lane that was asked for, live), "reel" (a race that can be replayed), "cursor" (the step that
// is shown: {lane, step}) and "result" (the rows of a race that ran to its end); they may ask for a step with "seek".
const REPLAY_AFTER_MS = 2500, LOADING_MS = 700;
// A picture costs the browser far more than what is new in it, and a race on the same machine pays for that: frames
// that come faster are drawn together.
const PICTURE_MS = 95;
const stage = element.querySelector(".stage");
const find = (name) => stage.querySelector(name);
const passages = new Passages(find(".passages")), track = new Track(find(".track"));
const methods = new Map(props.methods.map((method) => [method.lane, method]));
const player = new Player(find(".player"), { begin, clear, show, draw, cursor, end });
const gallery = new Gallery(find(".gallery"), props.gallery, openReel, complain);
const MODES = { idle: "", live: "Live", replay: "Replay", result: "Finished" };
let race = 0, left = -1, seq = -1, drawn = false, panes = [], reel, follows, source;
let arrived = [], due = 0, late;

function setLanes(lanes, most) {
  panes = lanes.map((lane) => new Pane({ ...lane, ...methods.get(lane.lane) }));
  panes.forEach((pane, index) => pane.solo.addEventListener("click", () => setSolo(index)));
  find(".panes").replaceChildren(...panes.map((pane) => pane.node));
  find(".panes").dataset.count = panes.length;
  setSolo(undefined);
  setTrack(lanes, 0, most);
}

function setTrack(lanes, length, most) {
  track.show(lanes.map((lane) => ({ ...lane, ...methods.get(lane.lane) })), length, most);
}

function setSolo(index) {
  const solo = index === player.solo ? undefined : index;
  player.solo = solo;
  find(".panes").dataset.solo = solo ?? "";
  panes.forEach((pane, number) => {
    pane.node.classList.toggle("away", solo !== undefined && number !== solo);
    pane.solo.setAttribute("aria-pressed", String(number === solo));
  });
}

function setMode(mode) {
  stage.dataset.mode = mode;
  passages.live = mode === "live";
  find(".mode").textContent = MODES[mode];
  find(".podium").hidden ||= mode !== "result";
  find(".again").hidden ||= mode !== "result";
  const stop = document.getElementById("stop");
  if (stop) stop.dataset.live = String(mode === "live");
}

function say(words, kind = "") {
  const line = find(".announcer");
  line.dataset.kind = kind;
  if (words && line.textContent !== words) line.textContent = line.title = words;
}

function setPhase(phase, words) {
  stage.dataset.phase = phase;
  setMode(phase === "running" || phase === "waiting" ? "live" : stage.dataset.mode === "live" ? "idle" : stage.dataset.mode);
  say(words, phase === "failed" ? "bad" : "");
  // Open settings may have pushed the line out of sight.
  if (phase === "failed") find(".announcer").scrollIntoView({ block: "nearest" });
}

function complain(words) {
  player.pause();
  say(words, "bad");
}

function beginRace(number) {
  clearTimeout(follows);
  player.unload();
  race = number;
  seq = -1;
  drawn = false;
  arrived = [];
  reel = undefined;
  Object.assign(stage.dataset, { race, frames: 0, lost: 0, seq });
  find(".results").hidden = true;
  panes.forEach((pane) => pane.clear());
  setTrack(panes.map((pane) => pane.method), 0, 0);
  find(".clock b").textContent = seconds(0);
  passages.dim();
  setMode("live");
  // From here on the space bar is the replay's, not the button's that was pressed.
  if (document.activeElement?.closest("#race, .example")) stage.focus({ preventScroll: true });
}

function drawHead(head) {
  setLanes(head.lanes, head.settings?.max_new_tokens ?? 160);
  passages.show(head.passages, panes.map((pane) => pane.method));
  find(".machine").textContent = find(".machine").title = describeRecording({ ...head, date: undefined });
  if (head.engine) find(".machine").title += ` · ${head.engine}`;
  find(".machine").title += `. Prompt: ${head.prompt_tokens} tokens, read in ${head.prefill_ms} ms, once for all lanes.`;
  for (const lane of head.lanes) if (lane.prefill_ms) find(".machine").title += ` ${lane.title}: its model read it in ${lane.prefill_ms} ms.`;
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.open = "false";
  document.getElementById("settings-button")?.setAttribute("aria-expanded", "false");
  drawn = true;
}

function showHead(head) {
  drawHead(head);
  stage.dispatchEvent(new CustomEvent("begun", { detail: { live: true, lanes: head.lanes } }));
  setPhase("running", `Racing: ${head.lanes.map((lane) => lane.title).join(", ")}.`);
}

// One that was stopped has no winner, nor has one whose figures do not count.
function showResult({ results: rows, phase, pace }) {
  const stopped = phase === "stopped", disturbed = Boolean(pace?.disturbed), open = stopped || disturbed;
  const best = Math.max(...rows.map((row) => row.speedup));
  rows.forEach((row, index) => {
    panes[index].settle();
    panes[index].setBadge(...row.badge);
    panes[index].setSpeedup(row.speedup);
    panes[index].node.dataset.done ||= row.end;
    panes[index].node.classList.toggle("winner", !open && rows.length > 1 && row.speedup === best);
  });
  showResults(find(".results"), rows, open ? "" : tellWhy(rows));
  find(".results .pace").textContent = pace?.note ?? "";
  showPodium(find(".podium"), open ? [] : rows.map((row) => ({ ...row, ...methods.get(row.lane) })));
  setMode("result");
  if (open) find(".mode").textContent = stopped ? "Stopped" : "Disturbed";
  stage.dataset.disturbed = String(disturbed);
  find(".again").hidden = !disturbed || !document.getElementById("race");
  stage.dispatchEvent(new CustomEvent("result", { detail: open ? [] : rows }));
}

function showEnd(frame) {
  setPhase(frame.phase, frame.headline);
  showResult(frame);
}

// The replay follows by itself, unless somebody has begun to do something else, or wants things to keep still.
function takeReel(frame) {
  reel = frame;
  load();
  if (frame.phase === "finished" && !CALM.matches) follows = setTimeout(() => player.play(), REPLAY_AFTER_MS);
}

// The whole race as the reel has it: now every step can be pointed at.
function load() {
  player.load(reel);
  clear();
  for (const step of reel.steps) show(step, true);
  draw(player.length);
  showResult(reel);
  stage.dispatchEvent(new CustomEvent("reel", { detail: reel }));
}

// A recorded race. One that runs is given up.
function openReel(opened, offered) {
  clearTimeout(follows);
  source?.close();
  arrived = [];
  stage.dataset.phase = "idle";
  left = race;
  reel = opened;
  drawHead(reel.head);
  load();
  const { question } = reel.head, about = describeRecording(reel.head);
  say(`Recorded race: “${question ?? "no question"}” ${about}`);
  if (!offered) setQuestion(question);
  if (!CALM.matches) player.play();
}

function setQuestion(words) {
  const field = document.querySelector("#question textarea, #question input");
  if (!field || !words) return;
  field.value = words;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function begin() {
  clearTimeout(follows);
  if (stage.dataset.mode !== "replay") setMode("replay");
}

function clear() {
  stage.dispatchEvent(new CustomEvent("begun", { detail: { live: false } }));
  panes.forEach((pane) => pane.clear());
  setTrack(reel.head.lanes, player.length, reel.head.settings?.max_new_tokens ?? 160);
  passages.dim();
}

function show(step, still) {
  const pane = panes[step.lane];
  pane.apply(step.frame, (spans, run) => passages.light(spans, run), step.index, still);
  passages.count(step.lane, step.frame.sources);
  if (!still) stage.dispatchEvent(new CustomEvent("moved", { detail: step.frame }));
  track.apply(step.frame);
  // A step of vanilla moves every lane's speedup, and any step its own.
  const base = panes[0].meters?.tokens_per_s;
  for (const each of step.lane ? [pane] : panes) if (each.meters) each.setSpeedup(base ? each.meters.tokens_per_s / base : 0);
}

function draw(time) {
  track.draw();
  runDue();
  for (const pane of panes) if (pane.unsettled) pane.settle();
  find(".clock b").textContent = seconds(time);
}

function cursor(step) {
  const detail = { lane: step.lane, step: step.index };
  if (!player.playing) panes.forEach((pane, index) => pane.point(index === step.lane ? step.index : -1));
  stage.dispatchEvent(new CustomEvent("cursor", { detail }));
}

function end() {
  draw(player.length);
  showResult(reel);
  say(reel.headline);
}

// A race that was asked for. The server ends it when this page no longer listens.
function listen({ key }) {
  source?.close();
  const mine = (source = new EventSource(`gradio_api/race/${key}`));
  stage.dataset.key = key;
  mine.addEventListener("message", ({ data }) => take(JSON.parse(data)));
  mine.addEventListener("end", () => mine.close());
  mine.addEventListener("error", () => {
    mine.close();
    if (mine === source) setPhase("failed", "The connection was lost, and the race with it; press Race to begin another.");
  });
}

function take(frame) {
  if (frame.race < race || frame.race <= left) return;
  if (frame.race > race) beginRace(frame.race);
  if (frame.kind === "watch") return listen(frame);
  if (frame.kind === "note") return setPhase(frame.phase, frame.message);
  if (frame.kind === "reel") return takeReel(frame);
  if (frame.seq <= seq) return;
  stage.dataset.lost = Number(stage.dataset.lost) + frame.seq - seq - 1;
  stage.dataset.frames = Number(stage.dataset.frames) + 1;
  stage.dataset.seq = seq = frame.seq;
  arrived.push(frame);
  if (performance.now() >= due || frame.results || !drawn) drawFrames();
  else late ??= setTimeout(drawFrames, PICTURE_MS);
}

function drawFrames() {
  clearTimeout(late);
  late = undefined;
  due = performance.now() + PICTURE_MS;
  const frames = arrived.splice(0), last = frames.at(-1);
  for (const frame of frames) applyFrame(frame);
  if (!drawn || !last) return;
  draw(last.clock);
  if (last.results) showEnd(last);
}

function applyFrame(frame) {
  if (frame.head && !drawn) showHead(frame.head);
  if (!drawn) return;
  for (const lane of frame.lanes) {
    panes[lane.lane].apply(lane, (spans, run) => passages.light(spans, run));
    passages.count(lane.lane, lane.sources);
    stage.dispatchEvent(new CustomEvent("moved", { detail: lane }));
    track.apply(lane);
  }
  if (frame.step) stage.dispatchEvent(new CustomEvent("step", { detail: frame.step }));
}

watch("value", () => props.value && take(JSON.parse(props.value)));

stage.addEventListener("seek", ({ detail }) => player.goTo(player.find(detail.lane, detail.step)));
find(".panes").addEventListener("click", ({ target }) => {
  const words = target.closest("[data-step]"), index = panes.findIndex((pane) => pane.node.contains(target));
  if (!words || !reel) return;
  player.pause();
  cursor({ lane: index, index: Number(words.dataset.step) });
});
document.addEventListener("pointerdown", () => clearTimeout(follows));

setLanes(props.lanes.map((lane) => ({ lane })));
player.unload();

// A visitor who comes while the model loads, or where there is none, sees a recorded race at once.
function offerRecording() {
  const status = document.querySelector(".status")?.dataset.state ?? "failed";
  const invited = new URLSearchParams(location.search).get("autorun") === "1";
  if (stage.dataset.mode !== "idle" || status === "ready" || invited || gallery.asked || !props.gallery.length) return;
  if (props.only_replay || !CALM.matches) gallery.play(props.gallery[0].name, true);
  else say("The model is loading. Press “Recorded races” to watch one meanwhile.");
}
setTimeout(offerRecording, props.only_replay ? 0 : LOADING_MS);
