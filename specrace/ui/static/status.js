// One line that says whether the model is there; the server sends {state, text} as a JSON string.
const line = element.querySelector(".status");
watch("value", () => {
  if (!props.value) return;
  const status = JSON.parse(props.value);
  line.dataset.state = status.state;
  line.querySelector("span").textContent = status.text;
});
