// Selectors in queries and in objects: the printed selector selects the same, and both ways to
// match agree.
//
// Input: a label selector, a line of labels as a JSON object, a field selector, a LabelSelector
// object.
#include <map>
#include <string>

#include "base/check.h"
#include "codec/json.h"
#include "input.h"
#include "meta/selector.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void check_labels(const meta::LabelSelector& selector, const codec::Json& labels) {
  std::map<std::string, std::string> map;
  for (const auto& [name, value] : labels.as_object()) map[name] = value.as_string();
  const bool matches = selector.matches(map);
  CHECK(matches == selector.matches_labels(labels));

  const auto again = meta::LabelSelector::parse(selector.str());
  CHECK(again.ok() && again->str() == selector.str());
  CHECK(again->requirements().size() == selector.requirements().size());
  CHECK(again->matches(map) == matches);
}

void check_fields(const meta::FieldSelector& selector, const codec::Json& labels) {
  const auto read = [&](std::string_view field) { return labels[field].as_string(); };
  const auto again = meta::FieldSelector::parse(selector.str());
  CHECK(again.ok() && again->terms().size() == selector.terms().size());
  for (std::size_t i = 0; i < selector.terms().size(); ++i) {
    const auto &a = selector.terms()[i], &b = again->terms()[i];
    CHECK(a.field == b.field && a.value == b.value && a.negated == b.negated);
    if (const auto exact = selector.exact(a.field); exact && selector.matches(read))
      CHECK(read(a.field) == *exact);
  }
  CHECK(again->matches(read) == selector.matches(read));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto labels_text = input.line();
  codec::Json labels = codec::Json::object();
  if (auto parsed = codec::parse_json(input.line()); parsed.ok() && parsed->is_object())
    labels = std::move(*parsed);
  const auto fields_text = input.line();
  if (const auto selector = meta::LabelSelector::parse(labels_text); selector.ok())
    check_labels(*selector, labels);
  if (const auto selector = meta::FieldSelector::parse(fields_text); selector.ok())
    check_fields(*selector, labels);
  if (const auto object = codec::parse_json(input.rest()); object.ok()) {
    if (const auto selector = meta::LabelSelector::from_json(*object); selector.ok())
      check_labels(*selector, labels);
  }
  return 0;
}
