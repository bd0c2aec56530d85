// What stands around the stage: the step inspector, the plots, explain mode, and the buttons that turn them on.
const inspector = new Inspector(stage), plots = new Plots(stage), explainer = new Explainer(stage);

// On stage the inspector lies over the panes and is shut at first; on the bench it stands open.
function toggleInspector() {
  const { node } = inspector, overlay = document.body.dataset.view === "stage", kind = overlay ? "overlay" : "open";
  // One that is open below the fold is not to be shut by who looks for it.
  const shows = node.dataset[kind] !== "true" || (!overlay && !inspector.seen);
  node.dataset[kind] = String(shows);
  document.getElementById("inspector-toggle")?.setAttribute("aria-expanded", String(shows));
  if (shows && !overlay) node.scrollIntoView({ block: "start", behavior: CALM.matches ? "auto" : "smooth" });
}

function toggleExplain() {
  document.getElementById("explain-toggle")?.setAttribute("aria-pressed", String(explainer.turn(explainer.node.hidden)));
}

inspector.node.dataset.open = "true";
find(".panes").before(explainer.node);
find(".passages").before(inspector.node, plots.node);
const settingsPanel = document.getElementById("settings");
if (settingsPanel) settingsPanel.dataset.lanes ??= props.lanes.join(" ");
stage.addEventListener("moved", ({ detail }) => explainer.take(detail, panes[detail.lane].method));
stage.addEventListener("begun", ({ detail }) => explainer.begin(detail.live));
stage.addEventListener("result", ({ detail }) => explainer.conclude(detail));
stage.addEventListener("cursor", ({ detail }) => player.playing || lightStep(detail));
passages.watch(find(".panes"));

// The step that is stood on shows where its words came from.
function lightStep({ lane, step }) {
  passages.pointAtRun(panes[lane]?.body.querySelector(`.run[data-step="${step}"]`));
}
