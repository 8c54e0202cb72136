// Series that come and go with the objects they tell of: what a Registry, whose series stay for good, is not for.
//
//   class Pets final : public metrics::Collector {
//     void collect(metrics::Samples& out) const override {
//       auto& fed = out.counter("pets_fed_total", "How often a pet was fed.");
//       for (const auto& pet : cache_.list()) fed.add({{"name", pet->name}}, pet->fed);
//     }
//   };
//
// Nothing is kept between two scrapes: values are those of the moment, and an object that is gone has left no series behind.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metrics.h"

namespace varda::metrics {

/// What one scrape found. One thread.
class Samples {
 public:
  class Family {
   public:
    /// No two samples of a family may have the same labels.
    void add(std::initializer_list<std::pair<std::string_view, std::string_view>> labels, double value);

   private:
    friend class Samples;
    std::string name_, help_;
    std::string_view type_;
    std::string lines_;
  };

  /// The family of that name; valid as long as this. A second call must be for the same type, and its help is not looked at.
  /// A value that fell since the last scrape tells Prometheus of a new start: of a counter, only an object made anew may do that.
  Family& counter(std::string_view name, std::string_view help) { return family(name, help, "counter"); }
  Family& gauge(std::string_view name, std::string_view help) { return family(name, help, "gauge"); }

  /// In the text format, families by name. One without samples is left out.
  std::string text() const;

 private:
  Family& family(std::string_view name, std::string_view help, std::string_view type);
  std::map<std::string, Family, std::less<>> families_;
};

class Collector {
 public:
  virtual ~Collector() = default;
  /// Adds what there is now. Any thread, several at once; quick, and without waiting for anybody. Its families are in no Registry
  /// whose text is beside it.
  virtual void collect(Samples& out) const = 0;
};

/// What all of them have to say now.
std::string text_of(const std::vector<const Collector*>& collectors);

}  // namespace varda::metrics
