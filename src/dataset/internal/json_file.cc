#include "dataset/internal/json_file.h"

namespace varda::dataset {

Tally JsonFileScanner::finish() {
  const bool whole = text_.end(*this);
  if (is_wrong_file()) {
    tally_.inexact = wrong_;
  } else if (!text_.error().empty()) {
    tally_.inexact =
        "invalid JSON from byte " + std::to_string(text_.error_at()) + ": " + text_.error();
    add_malformed(tally_, {"", text_.lines() + 1, text_.error_at(), text_.error()});
  } else if (!whole) {
    tally_.inexact = text_.blank() ? "the file is empty"
                                   : "the JSON text is incomplete: being written, or truncated";
  } else {
    complete();
  }
  return tally_;
}

Json JsonFileScanner::save_own() const {
  return Json::object({{"tally", save_tally(tally_)}, {"wrong", wrong_}, {"text", text_.save()}});
}

Status JsonFileScanner::restore_own(const Json& saved) {
  Saved in(saved);
  TRY(tally_, restore_tally(saved["tally"]));
  wrong_ = in.text("wrong");
  TRY_VOID(text_.restore(saved["text"]));
  return in.status();
}

}  // namespace varda::dataset
