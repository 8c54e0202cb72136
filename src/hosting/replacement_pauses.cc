#include "hosting/replacement_pauses.h"

#include <algorithm>

namespace varda::hosting {

namespace {

constexpr Duration kShortest = std::chrono::seconds(5), kLongest = std::chrono::minutes(5),
                   kLongLife = std::chrono::minutes(10);

}  // namespace

Duration ReplacementPauses::left(const meta::ObjectKey& model, const std::string& uid,
                                 Duration lived, SteadyTime now) {
  Pause& pause = pauses_[model];
  if (pause.uid != uid) {
    const bool starts_over = pause.uid.empty() || lived > kLongLife;
    pause.length = starts_over ? kShortest : std::min(pause.length * 2, kLongest);
    pause.uid = uid;
    pause.until = now + pause.length;
  }
  return pause.until - now;
}

}  // namespace varda::hosting
