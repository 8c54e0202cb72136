// `varda models ls`: lists and filters the Models of both groups.
#pragma once

#include <string>
#include <vector>

#include "cli/model_query.h"
#include "cli/printer.h"
#include "cli/session.h"

namespace varda::cli {

struct ListModelsOptions {
  std::vector<std::string> where;  // syntax: model_query.h
  ModelShorthands shorthands;
  std::string sort_by;
  std::string label_selector;
  Output output;
  bool headers = true;
};
/// Lists the session's namespace, or all. Ignores a group that the server lacks; kNotFound: the
/// server lacks both.
Status list_models(const Context& ctx, Session& session, const ListModelsOptions& options);

}  // namespace varda::cli
