#include "training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace varda::training {

double learning_rate(const Settings& settings, std::uint64_t update, std::uint64_t each) {
  const Schedule& schedule = settings.schedule;
  const double rate = settings.optimizer.learning_rate;
  const std::uint64_t warmup = static_cast<std::uint64_t>(schedule.warmup_epochs) * each;
  // The first update of a warm-up is above 0, so that it is not lost.
  if (update < warmup) return rate * static_cast<double>(update + 1) / static_cast<double>(warmup);
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      return rate;
    case Schedule::Kind::kStep: {
      const std::uint64_t times = update / each / static_cast<std::uint64_t>(schedule.every_epochs);
      return std::max(schedule.minimum,
                      rate * std::pow(schedule.factor, static_cast<double>(times)));
    }
    case Schedule::Kind::kCosine: {
      const std::uint64_t all = static_cast<std::uint64_t>(settings.epochs) * each;
      const double part = static_cast<double>(update - warmup) /
                          static_cast<double>(std::max<std::uint64_t>(all - warmup, 1));
      return schedule.minimum +
             (rate - schedule.minimum) * (1 + std::cos(std::numbers::pi * part)) / 2;
    }
  }
  return rate;
}

}  // namespace varda::training
