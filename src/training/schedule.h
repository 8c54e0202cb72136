// The learning rate of each update.
#pragma once

#include <cstdint>

#include "training/settings.h"

namespace varda::training {

/// The rate of update `update`, counted from 0 over the whole run. An epoch has `each` updates. The
/// steps of the schedule `step` count from the begin of the run; those of `cosine` from the end of
/// the warm-up.
double learning_rate(const Settings& settings, std::uint64_t update, std::uint64_t each);

}  // namespace varda::training
