#include "agent/models/tier_counters.h"

#include <algorithm>

namespace varda::agent::models {
namespace {

using codec::Json;

constexpr std::size_t kNameBytesMax = 128, kNamesMax = 4, kTiersMax = 16;
constexpr std::int64_t kCountMax = std::int64_t{1} << 53;  // the largest integer that every JSON
                                                           // reader represents exactly
constexpr std::int64_t kSumMax = std::int64_t{1} << 61;

Error wrong(const std::string& what) {
  return Error(Code::kInvalid, "the answer about tiers: " + what);
}

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

Status read_counters(const Json& from, const std::string& at, std::size_t depth, Counts& out) {
  for (const auto& [name, value] : from.as_object()) {
    if (name.size() > kNameBytesMax)
      return wrong("a counter's name has more than " + std::to_string(kNameBytesMax) + " bytes");
    const std::string place = at + "/" + escaped(name);
    if (value.is_object()) {
      if (depth + 1 >= kNamesMax) return wrong("counters" + place + " is nested too deeply");
      TRY_VOID(read_counters(value, place, depth + 1, out));
      continue;
    }
    if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > kCountMax)
      return wrong("counters" + place + " must be an integer from 0 to 2^53");
    if (value.as_integer() == 0 && depth >= 2) continue;
    out[place] = value.as_integer();
    if (out.size() > TierAnswer::kCountersMax)
      return wrong("it has more than " + std::to_string(TierAnswer::kCountersMax) + " counters");
  }
  return {};
}

/// Inputs and result lie within the bounds of a sum.
std::int64_t add(std::int64_t a, std::int64_t b) { return std::clamp(a + b, -kSumMax, kSumMax); }

void add_all(Counts& to, const Counts& more) {
  for (const auto& [place, count] : more) to[place] = add(to[place], count);
}

/// Counters as nested objects. If a path is a number for one server and an object for another, the
/// object wins.
Json tree_of(const Counts& counts) {
  Json out = Json::object();
  for (const auto& [place, count] : counts) {
    Json* at = &out;
    std::size_t start = 0;
    while (start < place.size()) {
      const std::size_t end = std::min(place.find('/', start + 1), place.size());
      std::string name = place.substr(start + 1, end - start - 1);
      for (const auto& [escape, plain] : {std::pair("~1", "/"), std::pair("~0", "~")})
        for (std::size_t i = name.find(escape); i != std::string::npos;
             i = name.find(escape, i + 1))
          name.replace(i, 2, plain);
      if (!at->is_object()) *at = Json::object();
      at = &(*at)[name];
      start = end;
    }
    if (!at->is_object()) *at = Json(std::max<std::int64_t>(count, 0));
  }
  return out;
}

Counts counts_of(const Json& tree) {
  Counts out;
  // Without the limits of an answer: sums may be greater. Unreadable members are skipped.
  const auto read = [&out](const auto& self, const Json& from, const std::string& at,
                           int depth) -> void {
    for (const auto& [name, value] : from.as_object()) {
      if (value.is_integer()) out[at + "/" + escaped(name)] = value.as_integer();
      if (value.is_object() && depth < 8) self(self, value, at + "/" + escaped(name), depth + 1);
    }
  };
  read(read, tree, "", 0);
  return out;
}

Json flat(const Counts& counts) {
  Json out = Json::object();
  for (const auto& [place, count] : counts) out.set(place, count);
  return out;
}

std::optional<Counts> from_flat(const Json& json, std::int64_t min, std::int64_t max) {
  if (!json.is_object()) return std::nullopt;
  Counts out;
  for (const auto& [place, count] : json.as_object()) {
    if (!count.is_integer() || count.as_integer() < min || count.as_integer() > max)
      return std::nullopt;
    if (!place.starts_with('/') ||
        std::count(place.begin(), place.end(), '/') > static_cast<std::ptrdiff_t>(kNamesMax))
      return std::nullopt;
    out[place] = count.as_integer();
  }
  return out;
}

Json two_digits(const Json& value) {
  const std::int64_t number = std::clamp<std::int64_t>(value.as_integer(), 0, kCountMax);
  std::int64_t step = 1;
  while (number / step >= 100) step *= 10;
  return (number + step / 2) / step * step;
}

void for_each_tier(Json& rest, const auto& change) {
  if (Json* tiers = rest.find("tiers"); tiers != nullptr && tiers->is_array())
    for (Json& tier : tiers->array_items())
      if (tier.is_object()) change(tier);
}

}  // namespace

Result<TierAnswer> read_tier_answer(const Json& answer) {
  if (!answer.is_object()) return wrong("it is not an object");
  TierAnswer out;
  out.rest = Json::object();
  out.instance = answer["instance"].as_string();
  if (out.instance.empty() || out.instance.size() > kNameBytesMax)
    return wrong("instance is not a text of 1 to 128 bytes");
  if (!answer["counters"].is_object()) return wrong("counters is not an object");
  TRY_VOID(read_counters(answer["counters"], "", 0, out.counters));
  for (const auto& [name, value] : answer.as_object())
    if (name != "instance" && name != "counters" && name != "epoch" && name != "uid")
      out.rest.set(name, value);
  const Json& tiers = answer["tiers"];
  if (!tiers.is_array() || tiers.size() > kTiersMax)
    return wrong("tiers is not a list of at most " + std::to_string(kTiersMax));
  for (const Json& tier : tiers.as_array())
    if (!tier.is_object()) return wrong("a tier is not an object");
  for (const char* name : {"degraded", "problem"})
    if (const Json* member = answer.find(name); member != nullptr && !member->is_object())
      return wrong(std::string(name) + " is not an object");
  for_each_tier(out.rest, [](Json& tier) {
    for (const char* name : {"p50Us", "p99Us"})
      if (Json* figure = tier.find(name); figure != nullptr && figure->is_integer())
        *figure = two_digits(*figure);
  });
  if (codec::write_json(out.rest).size() > TierAnswer::kRestBytesMax)
    return wrong("it has more than " + std::to_string(TierAnswer::kRestBytesMax) +
                 " bytes besides counters");
  return out;
}

Json noteworthy(const Json& rest) {
  Json out = rest;
  for_each_tier(out, [](Json& tier) {
    for (const char* name : {"p50Us", "p99Us"}) tier.erase(name);
    if (std::as_const(tier)["state"].as_string() == "HalfOpen") tier.set("state", "Open");
  });
  // A server may compute it from an age, with an error of a second.
  if (Json* degraded = out.find("degraded"); degraded != nullptr && degraded->is_object())
    degraded->erase("since");
  return out;
}

Json urgent(const Json& rest) {
  Json out = noteworthy(rest);
  for_each_tier(out, [](Json& tier) { tier.erase("lastError"); });
  if (Json* degraded = out.find("degraded"); degraded != nullptr && degraded->is_object())
    degraded->erase("message");
  return out;
}

void keep_ahead(Json& report, const Json& live) {
  if (!report.is_object() || std::as_const(report)["epoch"] != live["epoch"]) return;
  Counts counts = counts_of(std::as_const(report)["counters"]);
  for (const auto& [place, count] : counts_of(live["counters"]))
    counts[place] = std::max(counts[place], count);
  report.set("counters", tree_of(counts));
}

std::optional<TierCounters> TierCounters::from_json(const Json& json) {
  TierCounters out(json["epoch"].as_string(), json["of"].as_string());
  auto base = from_flat(json["base"], -kSumMax, kSumMax);
  if (out.epoch_.empty() || !base) return std::nullopt;
  out.base_ = std::move(*base);
  out.before_ = json["before"].as_string();
  out.skip_ = json["skip"].as_bool();
  out.rest_ = json["rest"];
  for (const Json& one : json["instances"].as_array()) {
    auto seen = from_flat(one["seen"], 0, kCountMax);
    if (!seen || one["instance"].as_string().empty()) return std::nullopt;
    out.instances_.emplace_back(one["instance"].as_string(), std::move(*seen));
  }
  out.loaded_ = out.sums();
  return out;
}

Json TierCounters::to_json() const {
  Json instances = Json::array();
  for (const auto& [instance, seen] : instances_)
    instances.push_back(Json::object({{"instance", instance}, {"seen", flat(seen)}}));
  Json out =
      Json::object({{"epoch", epoch_}, {"base", flat(base_)}, {"instances", std::move(instances)}});
  if (!of_.empty()) out.set("of", of_);
  if (!before_.empty()) out.set("before", before_);
  if (skip_) out.set("skip", true);
  if (!rest_.is_null()) out.set("rest", rest_);
  return out;
}

void TierCounters::take(TierAnswer answer) {
  const auto known = std::find_if(instances_.begin(), instances_.end(),
                                  [&](const auto& one) { return one.first == answer.instance; });
  if (known == instances_.end()) {
    instances_.emplace(instances_.begin(), answer.instance, std::move(answer.counters));
  } else {
    // An answer that arrives after a later one has smaller counters.
    for (const auto& [place, count] : answer.counters)
      known->second[place] = std::max(known->second[place], count);
    std::rotate(instances_.begin(), known, known + 1);
  }
  if (instances_.size() > kInstancesMax) {
    add_all(base_, instances_.back().second);
    instances_.pop_back();
  }
  if (std::exchange(skip_, false)) count_from(sums());
  if (!first_) first_ = sums();
  rest_ = std::move(answer.rest);
}

void TierCounters::count_from(const Counts& zero) {
  for (const auto& [place, count] : zero) base_[place] = add(base_[place], -count);
}

void TierCounters::reconcile_with_server(const Json& live, std::string epoch) {
  const std::string& live_epoch = live["epoch"].as_string();
  if (live_epoch.empty() || (!before_.empty() && live_epoch == before_)) return;
  if (live_epoch == epoch_) {
    const Counts counts = counts_of(live["counters"]);
    const bool more = std::any_of(counts.begin(), counts.end(), [this](const auto& one) {
      const auto loaded = loaded_.find(one.first);
      return one.second > (loaded == loaded_.end() ? 0 : loaded->second);
    });
    if (!more) return;
  }
  before_ = live_epoch;
  epoch_ = std::move(epoch);
  if (!first_) skip_ = true;
  count_from(first_ ? *first_ : sums());
}

void TierCounters::begin(std::string epoch, std::string of) {
  before_ = std::exchange(epoch_, std::move(epoch));
  of_ = std::move(of);
  rest_ = Json();
  count_from(sums());
  // Keep no entries for counters that no server reports any more.
  std::erase_if(base_, [](const auto& one) { return one.second == 0; });
  first_.reset();
  loaded_.clear();
}

Counts TierCounters::sums() const {
  Counts out = base_;
  for (const auto& [instance, seen] : instances_) add_all(out, seen);
  return out;
}

Json TierCounters::report(const Counts& sums) const {
  if (rest_.is_null()) return {};
  Json out = Json::object({{"epoch", epoch_}, {"counters", tree_of(sums)}});
  if (!of_.empty()) out.set("uid", of_);
  for (const auto& [name, value] : rest_.as_object()) out.set(name, value);
  return out;
}

}  // namespace varda::agent::models
