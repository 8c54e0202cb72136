#include "controllers/runs/conditions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "codec/text.h"
#include "meta/object.h"

namespace varda::controllers::runs {

namespace {

constexpr std::size_t kMessageBytesMax = 8192;

}  // namespace

ConditionWriter::ConditionWriter(std::vector<meta::Condition>& conditions,
                                 const std::int64_t& generation,
                                 std::optional<Duration>& recheck_in, WallTime now)
    : conditions_(conditions),
      generation_(generation),
      recheck_in_(recheck_in),
      wall_(now),
      now_(meta::format_time(now)) {}

void ConditionWriter::set(std::string type, hosting::Verdict verdict) {
  meta::set_condition(conditions_,
                      {std::move(type), std::string(verdict.status), std::move(verdict.reason),
                       codec::clipped(verdict.message, kMessageBytesMax), generation_, ""},
                      now_);
}

void ConditionWriter::erase(std::string_view type) {
  std::erase_if(conditions_,
                [type](const meta::Condition& condition) { return condition.type == type; });
}

void ConditionWriter::recheck(Duration delay) {
  delay = std::max<Duration>(delay, std::chrono::seconds(1));
  recheck_in_ = recheck_in_ ? std::min(*recheck_in_, delay) : delay;
}

void ConditionWriter::recheck_at(WallTime time) {
  recheck(std::chrono::duration_cast<Duration>(time - wall_));
}

bool ConditionWriter::await(const char* type, const char* reason, const std::string& message,
                            Duration patience) {
  set(type, hosting::no(reason, message));
  const auto since =
      meta::parse_time(meta::find_condition(conditions_, type)->last_transition_time);
  if (!since.ok()) return false;
  if (wall_ >= *since + patience) return true;
  recheck_at(*since + std::chrono::duration_cast<WallTime::duration>(patience));
  return false;
}

}  // namespace varda::controllers::runs
