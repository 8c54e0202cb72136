// Label and field selectors of one request, bound to the fields its kind offers.
#pragma once

#include "apiserver/internal/outcome.h"
#include "apiserver/kind.h"
#include "meta/selector.h"
#include "net/url.h"

namespace varda::apiserver {

class Selection {
 public:
  /// 400 for a bad selector or a field the kind does not offer.
  static Outcome<Selection> parse(const net::Query& query, const Kind& kind);
  /// Selects one name only, for the path of a legacy watch.
  void narrow_to_name(std::string name) { only_name_ = std::move(name); }
  bool matches(const Kind& kind, const Json& object) const;
  /// True if namespace and name decide; the object need not be parsed.
  bool by_name_only() const;
  bool matches_name(const meta::ObjectKey& key) const;
  bool empty() const { return labels_.empty() && fields_.empty() && only_name_.empty(); }
  const meta::FieldSelector& fields() const { return fields_; }
  std::optional<std::string> name() const;

 private:
  meta::LabelSelector labels_;
  meta::FieldSelector fields_;
  std::string only_name_;
};

}  // namespace varda::apiserver
