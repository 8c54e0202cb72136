// Numbers for people: on the terminal and in the report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "training/run.h"

namespace varda::trainapp {

/// At most four significant digits: "0.0413", "12.5".
std::string number(double value);
/// "31,400".
std::string grouped(std::uint64_t value);
/// "42 s", "3 min 20 s", "2 h 5 min".
std::string time_span(double seconds);

/// The metric for one-line summaries: `preferred` if present, else the usual one of the task.
/// Name "" without metrics.
std::pair<std::string, double> main_metric(const std::map<std::string, double>& metrics,
                                           const std::string& preferred);

/// One line of at most `columns` characters:
/// "epoch 2/5 [====    ]  loss 0.041  accuracy 0.97  31,400 samples/s  12 s left".
std::string progress_line(const training::Progress& progress,
                          const std::pair<std::string, double>& metric, std::size_t columns);
/// "epoch 2/5  loss 0.041  evaluation loss 0.052  accuracy 0.97  3 s".
std::string epoch_line(const training::EpochRecord& record, std::int64_t epochs);

}  // namespace varda::trainapp
