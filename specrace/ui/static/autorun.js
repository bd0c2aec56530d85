(failed) => !failed && new URLSearchParams(location.search).get("autorun") === "1" && document.getElementById("race").click()
