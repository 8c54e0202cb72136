// Words of the Prometheus text format that metrics.cc and metric_collector.cc share.
#pragma once

#include <string>
#include <string_view>

namespace varda::metrics {

/// The shortest text that reads back as the same double; NaN, +Inf, -Inf.
std::string number(double value);

/// Adds name="value" to `out`, with what the format wants escaped, after a comma unless `out` is empty.
void add_label(std::string& out, std::string_view name, std::string_view value);

}  // namespace varda::metrics
