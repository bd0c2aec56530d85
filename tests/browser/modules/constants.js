import { CONSTANTS, ROUTES } from "../../../specrace/ui/static/lib/constants.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the server's constants are read from the page, and no script can change them": () => {
    let frozen = false;
    try {
      CONSTANTS.max_documents = 0;
    } catch {
      frozen = true;
    }
    return [
      [frozen, CONSTANTS.max_documents > 0, ROUTES.logs],
      [true, true, "gradio_api/logs"],
    ];
  },
};
