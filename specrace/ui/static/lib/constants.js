// The server's limits, routes and other constants, which `ui/stage/constants.py` writes into the page's head.
/** @import { Constants } from "./wire.d.ts" */
const META = /** @type {HTMLMetaElement} */ (document.querySelector("meta[name=specrace-constants]"));
/** @type {Constants} */
export const CONSTANTS = Object.freeze(JSON.parse(META.content));
export const ROUTES = CONSTANTS.routes;
