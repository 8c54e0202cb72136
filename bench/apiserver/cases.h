// Benchmarks of the API server; each adds figures to the report. docs/benchmarks.md describes them.
#pragma once

#include <string>

#include "support/child.h"
#include "support/report.h"

namespace varda::bench {

void measure_creates(Report& report);
void measure_gets(Report& report);
void measure_lists(Report& report);
void measure_watches(Report& report);
void measure_objects(Report& report);

/// A ConfigMap with a stored size of about 1 KiB, as JSON.
std::string config_map(const std::string& name);
inline constexpr const char* kConfigMaps = "/api/v1/namespaces/default/configmaps";
/// Creates config_map(prefix + "0") and so on, over one connection.
void fill(const Endpoint& endpoint, const std::string& prefix, int count);

}  // namespace varda::bench
