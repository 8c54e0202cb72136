// Admin port: /healthz, /readyz and /metrics of a process.
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

/// Answers until destroyed. `ready`, `registry` and `collectors` outlive the server. The I/O thread
/// calls all three, so they must not block.
Result<std::unique_ptr<net::Server>> serve_admin(
    const std::string& listen, const metrics::Registry& registry, std::function<bool()> ready,
    std::vector<const metrics::Collector*> collectors = {});

}  // namespace varda::app
