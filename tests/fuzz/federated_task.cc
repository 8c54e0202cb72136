// Tasks of a hostile aggregator, and times at which a client may train.
//
// Input: a JSON text. As a task: an accepted one has values in range, and an id that is a path
// component. As conditions: each moment has an answer.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "codec/json.h"
#include "participant/conditions.h"
#include "participant/task.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using participant::Task;

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 40;

void check_file(const Task::File& file) { CHECK(file.bytes >= 1 && file.bytes <= kBytesMax); }

void check_task(std::string_view text) {
  const auto task = participant::parse_task(text);
  if (!task.ok()) {
    CHECK(!task.error().message().empty());
    return;
  }
  CHECK(!task->id.empty() && task->id.size() <= 128 && task->id.front() != '.');
  CHECK(task->id.find_first_of("/?#%&= \r\n") == std::string::npos);
  CHECK(task->round >= 0 && task->rounds >= 0);
  CHECK(!task->seconds_left || std::isfinite(*task->seconds_left));
  if (task->kind == Task::Kind::kEnd) return;
  check_file(task->model);
  if (task->file) check_file(*task->file);
  if (task->train.control) {
    check_file(*task->train.control);
    CHECK(task->train.use_control);
  }
  CHECK(task->train.local_epochs >= 1 && task->train.local_steps >= 0);
  CHECK(task->train.seed <= INT64_MAX);
  CHECK(task->train.proximal >= 0 && task->train.proximal <= 1e9);
  CHECK(task->train.trainer.is_object());
  CHECK(task->update.keep > 0 && task->update.keep <= 1);
  CHECK(task->update.bytes_max <= kBytesMax);
  if (task->secure) {
    CHECK(task->kind == Task::Kind::kTrain && task->secure->length >= 2);
    CHECK(task->secure->limit > 0 && std::isfinite(task->secure->limit));
    CHECK(!task->secure->sum.empty() && !task->secure->client.empty());
    CHECK(!task->secure->clip || *task->secure->clip > 0);
    CHECK(!task->secure->weight_max || *task->secure->weight_max > 0);
  }
}

void check_conditions(std::string_view text) {
  const auto json = codec::parse_json(text);
  if (!json.ok()) return;
  const auto when = participant::parse_when(*json);
  if (!when.ok()) return;
  for (int minute = 0; minute < 24 * 60; minute += 7) {
    const std::chrono::minutes now(minute);
    const auto reason =
        participant::reason_to_wait(*when, {.utc = now, .local = now, .load = 0, .mains = true});
    CHECK(!reason || (when->window && !reason->empty()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_task(text);
  check_conditions(text);
  return 0;
}
