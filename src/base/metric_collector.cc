#include "base/metric_collector.h"

#include "base/check.h"
#include "base/internal/metric_text.h"

namespace varda::metrics {

void Samples::Family::add(
    std::initializer_list<std::pair<std::string_view, std::string_view>> labels, double value) {
  std::string inner;
  for (const auto& [name, text] : labels) add_label(inner, name, text);
  lines_ += name_;
  if (!inner.empty()) lines_.append("{").append(inner).append("}");
  lines_.append(" ").append(number(value)).append("\n");
}

Samples::Family& Samples::family(std::string_view name, std::string_view help,
                                 std::string_view type) {
  auto it = families_.find(name);
  if (it == families_.end()) {
    it = families_.emplace(std::string(name), Family()).first;
    it->second.name_ = name;
    it->second.help_ = help;
    it->second.type_ = type;
  }
  CHECK(it->second.type_ == type);
  return it->second;
}

std::string Samples::text() const {
  std::string out;
  for (const auto& [name, family] : families_) {
    if (family.lines_.empty()) continue;
    out.append("# HELP ").append(name).append(" ").append(family.help_).append("\n");
    out.append("# TYPE ").append(name).append(" ").append(family.type_).append("\n");
    out.append(family.lines_);
  }
  return out;
}

std::string text_of(const std::vector<const Collector*>& collectors) {
  Samples samples;
  for (const Collector* collector : collectors) collector->collect(samples);
  return samples.text();
}

}  // namespace varda::metrics
