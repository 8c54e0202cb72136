// `varda models ls`: the Models of both groups, chosen by what is known of them.
#pragma once

#include <string>
#include <vector>

#include "cli/printer.h"
#include "cli/session.h"

namespace varda::cli {

struct ListModelsOptions {
  std::vector<std::string> where;  // as model_query.h has it
  std::string sort_by;
  std::string label_selector;
  Output output;
  bool headers = true;
};
/// Of the session's namespace, or of all. A group that the server does not have is left out; kNotFound: it has neither.
Status list_models(const Context& ctx, Session& session, const ListModelsOptions& options);

}  // namespace varda::cli
