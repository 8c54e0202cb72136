#include "runtime/event.h"

#include <gtest/gtest.h>
#include <map>

#include "apiserver/testing/in_memory.h"

namespace varda::runtime {
namespace event_test {

using std::chrono::seconds, std::chrono::minutes;

const Resource& config_maps_resource() {
  static const Resource resource{"", "v1", "ConfigMap", "configmaps", true};
  return resource;
}

struct HandClock final : Clock {
  SteadyTime now() const override { return time; }
  WallTime wall() const override { return WallTime(time.time_since_epoch()); }
  SteadyTime time{std::chrono::hours(1)};
};

class EventTest : public ::testing::Test {
 protected:
  void record(const std::string& message, EventType type = EventType::kWarning,
              const char* reason = "Broken") {
    recorder_.record({&config_maps_resource(), {"default", "w"}, "uid-1", "7"}, type, reason,
                     message);
    recorder_.flush(Context().with_timeout(seconds(60)));
  }
  /// Counts of all events by message.
  std::map<std::string, std::int64_t> reported() {
    const Json list = api_.get("/api/v1/namespaces/default/events").body;
    std::map<std::string, std::int64_t> out;
    for (const Json& event : list["items"].as_array())
      out[event["message"].as_string()] += event["count"].as_integer();
    return out;
  }
  using Reported = std::map<std::string, std::int64_t>;

  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  HandClock clock_;
  metrics::Registry metrics_;
  ApiEventRecorder recorder_{
      client_, {.component = "test", .burst = 1000, .clock = &clock_, .metrics = &metrics_}};
};

TEST_F(EventTest, SimilarEventsAreCombined) {
  for (int i = 0; i < 30; ++i) record("attempt " + std::to_string(i));
  Reported expected;
  for (int i = 0; i < 9; ++i) expected["attempt " + std::to_string(i)] = 1;
  expected["(combined from similar events): attempt 29"] = 21;
  EXPECT_EQ(reported(), expected);
  // Another reason or another type makes another event.
  record("other", EventType::kWarning, "Other");
  record("good", EventType::kNormal);
  EXPECT_EQ(reported().size(), expected.size() + 2);
}

TEST_F(EventTest, EventNamesOfOneObjectSortByTime) {
  for (int i = 0; i < 20; ++i) {
    record("step", EventType::kNormal, ("Reason" + std::to_string(i)).c_str());
    clock_.time += std::chrono::milliseconds(1);
  }
  std::map<std::string, std::string> reasons;  // by name
  for (const Json& event : api_.get("/api/v1/namespaces/default/events").body["items"].as_array())
    reasons[event.at("metadata/name").as_string()] = event["reason"].as_string();
  int next = 0;
  for (const auto& [name, reason] : reasons)
    EXPECT_EQ(reason, "Reason" + std::to_string(next++)) << name;
  EXPECT_EQ(next, 20);
}

TEST_F(EventTest, SimilarEventsAreSeparateAfterTenQuietMinutes) {
  for (int i = 0; i < 12; ++i) record("attempt " + std::to_string(i));
  clock_.time += minutes(10);
  record("still");
  EXPECT_EQ(reported().count("still"), 0u) << "ten minutes are not over yet";
  clock_.time += minutes(11);
  record("later");
  EXPECT_EQ(reported().count("later"), 1u);
}

TEST_F(EventTest, LongObjectNameIsCutToValidEventName) {
  for (const char* end : {"-tail", ".tail", "..tail", "tail"}) {
    recorder_.record(
        {&config_maps_resource(), {"default", std::string(199, 'w') + end}, "uid-1", "7"},
        EventType::kWarning, "Broken", end);
    recorder_.flush(Context().with_timeout(seconds(60)));
    EXPECT_EQ(reported().count(end), 1u) << end;
  }
}

TEST_F(EventTest, EventsAreLimitedToBurstThenOnePerFiveMinutes) {
  ApiEventRecorder recorder(client_, {.component = "test", .clock = &clock_, .metrics = &metrics_});
  const auto storm = [&] {
    for (int i = 0; i < 100; ++i) {
      recorder.record({&config_maps_resource(), {"default", "w"}, "uid-1", "7"},
                      EventType::kWarning, "Broken", "the same");
      recorder.flush(Context().with_timeout(seconds(60)));
    }
  };
  storm();
  EXPECT_EQ(reported(), (Reported{{"the same", 25}}));
  clock_.time += minutes(5);
  storm();
  EXPECT_EQ(reported(), (Reported{{"the same", 26}}));
  EXPECT_NE(metrics_.text().find("varda_events_dropped_total 174"), std::string::npos)
      << metrics_.text();
}

}  // namespace event_test
}  // namespace varda::runtime
