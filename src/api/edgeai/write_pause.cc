#include "api/edgeai/write_pause.h"

#include <algorithm>
#include <chrono>

namespace varda::api {

namespace {

constexpr auto kPausePerItemMax = std::chrono::milliseconds(10);
constexpr int kPauseOfTime = 5;

}  // namespace

Duration write_pause(std::size_t items, Duration took) {
  return std::min<Duration>(took * kPauseOfTime, kPausePerItemMax * items);
}

}  // namespace varda::api
