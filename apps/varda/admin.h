// The port every process of ours has beside its work: /healthz, /readyz, /metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/metric_collector.h"
#include "base/metrics.h"
#include "base/result.h"
#include "net/server.h"

namespace varda::app {

/// Answers until destroyed. `ready`, `registry` and `collectors` outlive it; all are asked on the I/O thread and must not block.
Result<std::unique_ptr<net::Server>> serve_admin(const std::string& listen, const metrics::Registry& registry,
                                                 std::function<bool()> ready,
                                                 std::vector<const metrics::Collector*> collectors = {});

}  // namespace varda::app
