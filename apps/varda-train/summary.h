// The text at the end of a run on a desk.
#pragma once

#include <string>

#include "job.h"

namespace varda::trainapp {

/// The metric that the settings name for early stopping, or "".
std::string metric_of(const training::Settings& settings);
/// "/data/test.csv", or "10% of the data".
std::string evaluation_text(const Job& job);
/// Metrics, files and the next command.
std::string summary(const Job& job, const Trained& trained);

}  // namespace varda::trainapp
