// What a visitor can take away of a race: links to copy and files to save.
/** @import { Stage } from "../stage/stage.js" */
import { CONSTANTS } from "../lib/constants.js";
import { closest } from "../lib/dom.js";
import { copyText, exportRace, linkToKeptRace, linkWithRace, linkWithSettings, saveReel } from "../lib/share.js";

// What a link leaves out: ui/races/race_request.py reads no parameters for these.
const LEFT_OUT = "It leaves out model, dtype and top-k; a recording keeps them.";
const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);
const NO_ANSWER = "The server does not answer; copy the long link, or save the race.";
const NO_EXPORT = "The server does not answer, so there is no web page; save the recording.";
const NO_RACE = "There is no race to share yet: run one first, or open a recorded one.";
const UNFINISHED = "This race is not over; wait for its end, then share it.";

// A warning about links to this server, if only this machine can open them.
function onlyHere() {
  return LOOPBACK.has(location.hostname) ? " It opens on this machine only." : "";
}

export class ShareDialog {
  /**
   * @param {Stage} stage
   * @param {number} hours for how long the server keeps the race of a short link; 0: it makes no such links
   */
  constructor(stage, hours = CONSTANTS.share_hours) {
    this.stage = stage;
    this.kept = `the server keeps this race for ${hours === 1 ? "an hour" : `${hours} hours`}.`;
    this.dialog = /** @type {HTMLDialogElement} */ (stage.find("dialog.share"));
    // Both links open a race as a file, which this server may not accept.
    this.find("[data-do=pack]").hidden = !stage.gallery.takesFiles;
    this.find("[data-do=short]").hidden = !stage.gallery.takesFiles || !hours;
    this.find(".kept").textContent = `Shorter; ${this.kept}`;
    // A press of any of its buttons closes the dialog; the page then says what that did.
    this.dialog.addEventListener("click", ({ target }) => closest(target, "button") && this.dialog.close());
    // The actions of the buttons, by their data-do.
    this.actions = {
      save: () => saveReel(stage.reel),
      link: () => this.copySettingsLink(),
      pack: () => this.copyRaceLink(),
      short: () => this.copyShortLink(),
      export: () => this.saveAsHtml(),
    };
  }

  /**
   * @param {string} selector
   * @returns {HTMLElement}
   */
  find(selector) {
    return this.dialog.querySelector(selector);
  }

  open() {
    const { player, reel } = this.stage;
    if (!reel) return this.stage.announce(NO_RACE);
    if (player.live || !reel.finished) return this.stage.announce(UNFINISHED);
    return this.dialog.showModal();
  }

  copySettingsLink() {
    const link = linkWithSettings(this.stage.reel);
    return copyText(link).then(
      () => this.stage.announce(`The link is copied. ${LEFT_OUT}`),
      () => this.stage.announce(link),
    );
  }

  saveAsHtml() {
    return exportRace(this.stage.reel).then(
      () => this.stage.announce("The race is saved as a web page, which plays in any browser, without a server."),
      () => this.stage.pauseWithError(NO_EXPORT),
    );
  }

  // Copies a link with the race inside. A race that is too long for a link is saved as a file.
  async copyRaceLink() {
    const { stage } = this;
    const link = await linkWithRace(stage.reel);
    if (!link) {
      saveReel(stage.reel);
      return stage.announce("This race is too long for a link, so it was saved as a file, which opens here again.");
    }
    return copyText(link).then(
      () => stage.announce(`A link that replays this race is copied.${onlyHere()}`),
      () => stage.announce("The browser does not let the page copy; save the recording instead."),
    );
  }

  async copyShortLink() {
    const { stage } = this;
    try {
      const link = await linkToKeptRace(stage.reel);
      const kept = `${this.kept}${onlyHere()}`;
      await copyText(link).then(
        () => stage.announce(`A short link is copied; ${kept}`),
        () => stage.announce(`${link} (${kept})`),
      );
    } catch (error) {
      stage.pauseWithError(`There is no short link. ${error instanceof TypeError ? NO_ANSWER : error.message}`);
    }
  }
}
