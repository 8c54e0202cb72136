// Metrics of objects that come and go. A Registry is unsuitable for these, because its series stay
// forever.
//
//   class Pets final : public metrics::Collector {
//     void collect(metrics::Samples& out) const override {
//       auto& fed = out.counter("pets_fed_total", "How often a pet was fed.");
//       for (const auto& pet : cache_.list()) fed.add({{"name", pet->name}}, pet->fed);
//     }
//   };
//
// No state remains between scrapes: values are current, and a removed object leaves no series.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metrics.h"

namespace varda::metrics {

/// The samples of one scrape. One thread.
class Samples {
 public:
  class Family {
   public:
    /// Label sets must be unique within a family.
    void add(std::initializer_list<std::pair<std::string_view, std::string_view>> labels,
             double value);

   private:
    friend class Samples;
    std::string name_, help_;
    std::string_view type_;
    std::string lines_;
  };

  /// The family of that name; valid as long as this object. Later calls must have the same type;
  /// `help` is then ignored. Prometheus treats a decreased counter as a restart: only a recreated
  /// object may decrease one.
  Family& counter(std::string_view name, std::string_view help) {
    return family(name, help, "counter");
  }
  Family& gauge(std::string_view name, std::string_view help) {
    return family(name, help, "gauge");
  }

  /// The text format, sorted by family name, without empty families.
  std::string text() const;

 private:
  Family& family(std::string_view name, std::string_view help, std::string_view type);
  std::map<std::string, Family, std::less<>> families_;
};

class Collector {
 public:
  virtual ~Collector() = default;
  /// Adds all current samples. Called from any thread, also concurrently; must be fast and not
  /// wait. Family names must differ from those of a Registry in the same response.
  virtual void collect(Samples& out) const = 0;
};

/// The current samples of all collectors as text.
std::string text_of(const std::vector<const Collector*>& collectors);

}  // namespace varda::metrics
