#include "base/metric_collector.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace varda::metrics {
namespace {

// Objects that come and go, as in an operator's caches.
class Pets final : public Collector {
 public:
  void collect(Samples& out) const override {
    Samples::Family& awake = out.gauge("pet_awake", "Whether it is awake.");
    Samples::Family& fed = out.counter("pet_fed_total", "How often it was fed.");
    for (const auto& [name, times] : fed_) {
      fed.add({{"name", name}, {"by", "me"}}, times);
      awake.add({{"name", name}}, 1);
    }
  }
  std::map<std::string, double> fed_;
};

TEST(MetricCollector, SamplesAreGroupedByFamilyInNameOrder) {
  Pets pets;
  pets.fed_ = {{"cat", 3}, {"dog", 0.5}};
  EXPECT_EQ(text_of({&pets}),
            "# HELP pet_awake Whether it is awake.\n# TYPE pet_awake gauge\n"
            "pet_awake{name=\"cat\"} 1\npet_awake{name=\"dog\"} 1\n"
            "# HELP pet_fed_total How often it was fed.\n# TYPE pet_fed_total counter\n"
            "pet_fed_total{name=\"cat\",by=\"me\"} 3\npet_fed_total{name=\"dog\",by=\"me\"} 0.5\n");
}

TEST(MetricCollector, RemovedSamplesAndEmptyFamiliesDisappear) {
  Pets pets;
  pets.fed_ = {{"cat", 3}, {"dog", 1}};
  EXPECT_NE(text_of({&pets}).find("dog"), std::string::npos);
  pets.fed_.erase("dog");
  EXPECT_EQ(text_of({&pets}).find("dog"), std::string::npos);
  pets.fed_.clear();
  EXPECT_EQ(text_of({&pets}), "");
}

TEST(MetricCollector, SeveralCollectorsMayAddToOneFamily) {
  Pets first, second;
  first.fed_ = {{"cat", 1}};
  second.fed_ = {{"dog", 2}};
  const std::string text = text_of({&first, &second});
  EXPECT_EQ(text.find("# TYPE pet_fed_total"), text.rfind("# TYPE pet_fed_total"));
  EXPECT_NE(
      text.find(
          "pet_fed_total{name=\"cat\",by=\"me\"} 1\npet_fed_total{name=\"dog\",by=\"me\"} 2\n"),
      std::string::npos);
}

TEST(MetricCollector, LabelValuesAreEscapedAndLabelsAreOptional) {
  Samples samples;
  Samples::Family& family = samples.gauge("g", "Any.");
  family.add({}, 1);
  family.add({{"a", "say \"hi\"\n\\o/"}}, 2);
  EXPECT_EQ(samples.text(),
            "# HELP g Any.\n# TYPE g gauge\ng 1\ng{a=\"say \\\"hi\\\"\\n\\\\o/\"} 2\n");
}

}  // namespace
}  // namespace varda::metrics
