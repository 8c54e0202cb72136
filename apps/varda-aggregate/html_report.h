// The report of a job as one HTML file without scripts and without references to other files.
#pragma once

#include <string>

#include "aggregator/coordinator.h"

namespace varda::aggregate {

/// Text from clients is escaped and shortened. The size is bounded: tables show at most 200 rounds
/// and 200 clients, curves at most 400 points.
std::string html_report(const aggregator::Snapshot& job, const federated::Settings& settings);

}  // namespace varda::aggregate
