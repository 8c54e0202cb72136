// Helpers for the Prometheus text format, shared by metrics.cc and metric_collector.cc.
#pragma once

#include <string>
#include <string_view>

namespace varda::metrics {

/// The shortest text that reads back as the same double; NaN, +Inf, -Inf.
std::string number(double value);

/// Appends name="value" to `out`, escaped as the format requires, after a comma unless `out` is
/// empty.
void add_label(std::string& out, std::string_view name, std::string_view value);

}  // namespace varda::metrics
