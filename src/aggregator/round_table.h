// The metrics of a job's rounds as a table.
#pragma once

#include <string>
#include <vector>

#include "federated/round_machine.h"

namespace varda::aggregator {

/// CSV with a line for each round, and columns for all metrics that occur.
std::string round_table(const std::vector<federated::RoundRecord>& history);

}  // namespace varda::aggregator
