// The server's bounds and routes, which `ui/page/constants.py` writes into the page's head.
export const CONSTANTS = Object.freeze(JSON.parse(document.querySelector("meta[name=specrace-constants]").content));
export const ROUTES = CONSTANTS.routes;
