// The port every process of ours has beside its work: /healthz, /readyz, /metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "base/result.h"
#include "net/server.h"

namespace varda::app {

/// Answers until destroyed. `ready` and `registry` outlive it; `ready` is called on the I/O thread and must not block.
Result<std::unique_ptr<net::Server>> serve_admin(const std::string& listen, const metrics::Registry& registry,
                                                 std::function<bool()> ready);

/// The three answers, for handlers that serve other paths too; nothing: another path.
std::optional<net::Response> answer_admin(const net::Request& request, const metrics::Registry& registry,
                                          const std::function<bool()>& ready);

}  // namespace varda::app
