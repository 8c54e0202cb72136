// Session of the CLI with the server that the flags name.
#pragma once

#include <functional>
#include <string>

#include "cli/session.h"
#include "command.h"

namespace varda::app {

struct SessionFlags {
  std::string ns;  // "": the kubeconfig's
  bool all_namespaces = false;
};

/// Finds the server, connects, and runs `work` with standard input, output and error. If no server
/// answers, the error names the server's address.
Status with_session(const Context& ctx, const Globals& globals, const SessionFlags& flags,
                    const std::function<Status(const Context&, cli::Session&)>& work);

}  // namespace varda::app
