// The stage: takes frames in, in order, and hands each lane its part. Text from outside goes through textContent only.
const stage = element.querySelector(".stage");
const find = (name) => stage.querySelector(name);
const passages = new Passages(find(".passages")), track = new Track(find(".track"));
const methods = new Map(props.methods.map((method) => [method.lane, method]));
let race = 0, seq = -1, drawn = false, panes = [];

function setLanes(lanes, longest) {
  panes = lanes.map((lane) => new Pane({ ...lane, ...methods.get(lane.lane) }));
  find(".panes").replaceChildren(...panes.map((pane) => pane.node));
  find(".panes").dataset.count = panes.length;
  track.show(panes.map((pane, index) => ({ ...lanes[index], ...methods.get(lanes[index].lane) })), longest);
}

function setPhase(phase, words) {
  stage.dataset.phase = phase;
  document.getElementById("stop").dataset.live = String(phase === "running" || phase === "waiting");
  if (words && find(".announcer").textContent !== words) find(".announcer").textContent = words;
}

function beginRace(number) {
  race = number;
  seq = -1;
  drawn = false;
  Object.assign(stage.dataset, { race, frames: 0, lost: 0, seq });
  find(".results").hidden = true;
}

function showHead(head) {
  setLanes(head.lanes, head.settings?.max_new_tokens ?? 160);
  passages.show(head.passages);
  const size = head.parameters ? `${(head.parameters / 1e6).toFixed(head.parameters < 1e8 ? 1 : 0)}M` : "";
  find(".machine").textContent = [head.model, size, head.dtype, head.device].filter(Boolean).join(" · ");
  find(".machine").title = `Prompt: ${head.prompt_tokens} tokens, read in ${head.prefill_ms} ms, once for all lanes.`;
  document.getElementById("settings").dataset.open = "false";
  document.getElementById("settings-button").setAttribute("aria-expanded", "false");
  setPhase("running", `Racing: ${head.lanes.map((lane) => lane.title).join(", ")}.`);
  drawn = true;
}

function showEnd(frame) {
  setPhase(frame.phase, frame.headline);
  const best = Math.max(...frame.results.map((row) => row.speedup));
  frame.results.forEach((row, index) => {
    panes[index].node.dataset.done ||= row.end;
    panes[index].node.classList.toggle("winner", frame.results.length > 1 && row.speedup === best);
  });
  showResults(find(".results"), frame.results);
}

function take(frame) {
  if (frame.race < race) return;
  if (frame.race > race) beginRace(frame.race);
  if (frame.kind === "note") return setPhase(frame.phase, frame.message);
  if (frame.seq <= seq) return;
  stage.dataset.lost = Number(stage.dataset.lost) + frame.seq - seq - 1;
  seq = frame.seq;
  if (frame.head && !drawn) showHead(frame.head);
  if (!drawn) return;
  for (const lane of frame.lanes) {
    panes[lane.lane].apply(lane, (spans) => passages.light(spans));
    track.apply(lane);
  }
  track.draw();
  find(".clock b").textContent = seconds(frame.clock);
  if (frame.results) showEnd(frame);
  stage.dataset.frames = Number(stage.dataset.frames) + 1;
  stage.dataset.seq = seq;
}

watch("value", () => props.value && take(JSON.parse(props.value)));

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, [contenteditable]");
  if (event.key === "Escape") document.getElementById("stop")?.click();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "r") document.getElementById("race")?.click();
});

setLanes(props.lanes.map((lane) => ({ lane })), 160);
