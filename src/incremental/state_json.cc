#include <cmath>
#include <utility>

#include "codec/settings_reader.h"
#include "incremental/round_machine.h"

namespace varda::incremental {
namespace {

using codec::Choice;
using codec::choice_name;
using codec::Json;

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kListItemsMax = 4096;
constexpr std::int64_t kNumberMax = 1'000'000'000'000'000;  // keeps sums in range

constexpr Choice<Stage> kStages[] = {
    {"Train", Stage::kTrain}, {"Eval", Stage::kEval}, {"Deploy", Stage::kDeploy}};
constexpr Choice<Phase> kPhases[] = {{"Waiting", Phase::kWaiting},     {"Ready", Phase::kReady},
                                     {"Starting", Phase::kStarting},   {"Running", Phase::kRunning},
                                     {"Completed", Phase::kCompleted}, {"Failed", Phase::kFailed}};
constexpr Choice<Outcome> kOutcomes[] = {
    {"Accepted", Outcome::kAccepted}, {"Refused", Outcome::kRefused}, {"Failed", Outcome::kFailed}};

// ---- write ----

/// Members with the initial value stay away, so that a status is short.
class ObjectWriter {
 public:
  void number(std::string_view name, std::int64_t value) {
    if (value != 0) out_.set(name, value);
  }
  void text(std::string_view name, const std::string& value) {
    if (!value.empty()) out_.set(name, value);
  }
  void real(std::string_view name, const std::optional<double>& value) {
    if (value) out_.set(name, *value);
  }
  void time(std::string_view name, WallTime value) {
    if (value != WallTime{}) out_.set(name, time_text(value));
  }
  void flag(std::string_view name, bool value) {
    if (value) out_.set(name, value);
  }
  template <typename List, typename Item>
  void list(std::string_view name, const List& values, Item item) {
    if (values.empty()) return;
    Json items = Json::array();
    for (const auto& value : values) items.push_back(item(value));
    out_.set(name, std::move(items));
  }
  void numbers(std::string_view name, const std::vector<std::int64_t>& values) {
    list(name, values, [](std::int64_t value) { return Json(value); });
  }
  void part(std::string_view name, Json value) {
    if (!value.empty()) out_.set(name, std::move(value));
  }
  Json take() { return std::move(out_); }

 private:
  Json out_ = Json::object();
};

Json counters_json(const Counters& counters) {
  ObjectWriter out;
  out.text("since", counters.since);
  out.number("answers", counters.answers);
  out.number("failures", counters.failures);
  out.number("hard", counters.hard);
  out.number("agreed", counters.agreed);
  out.number("baseAnswers", counters.base_answers);
  out.number("baseHard", counters.base_hard);
  out.numbers("scores", counters.scores);
  return out.take();
}

Json tally_json(const Tally& tally) {
  Json marks = Json::object();
  for (const auto& [node, counters] : tally.marks) marks.set(node, counters_json(counters));
  ObjectWriter out;
  out.part("marks", std::move(marks));
  out.part("carried", counters_json(tally.carried));
  return out.take();
}

Json served_json(const ServedVersion& served) {
  ObjectWriter out;
  out.text("version", served.version);
  out.number("round", served.round);
  return out.take();
}

// ---- read ----

/// Reads members of one object; an absent one leaves the initial value. Another type is an error.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string path, Status& status)
      : json_(json), path_(std::move(path)), status_(status) {
    if (!json.is_object()) fail("");
  }

  void number(std::string_view name, std::int64_t& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!is_count(*value)) return fail(name);
    out = value->as_integer();
  }
  void text(std::string_view name, std::string& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(name);
    out = value->as_string();
  }
  void real(std::string_view name, std::optional<double>& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_number() || !std::isfinite(value->as_double())) return fail(name);
    out = value->as_double();
  }
  void time(std::string_view name, WallTime& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    const auto parsed = parse_time(value->as_string());
    if (!parsed) return fail(name);
    out = *parsed;
  }
  void flag(std::string_view name, bool& out) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_bool()) return fail(name);
    out = value->as_bool();
  }
  template <typename T, std::size_t N>
  void choice(std::string_view name, T& out, const Choice<T> (&choices)[N]) {
    const Json* value = find(name);
    if (value == nullptr) return;
    for (const auto& [text, meaning] : choices) {
      if (!value->is_string() || value->as_string() != text) continue;
      out = meaning;
      return;
    }
    fail(name);
  }
  /// Appends read(item, path) for each item.
  template <typename T, typename Read>
  void list(std::string_view name, std::vector<T>& out, Read read) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kListItemsMax) return fail(name);
    for (const Json& item : value->as_array()) out.push_back(read(item, path(name)));
  }
  void numbers(std::string_view name, std::vector<std::int64_t>& out) {
    list(name, out, [this, name](const Json& item, const std::string&) {
      if (!is_count(item)) fail(name);
      return item.as_integer();
    });
  }
  void texts(std::string_view name, std::vector<std::string>& out) {
    list(name, out, [this, name](const Json& item, const std::string&) {
      if (!item.is_string()) fail(name);
      return item.as_string();
    });
  }
  const Json* object(std::string_view name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_object()) {
      fail(name);
      return nullptr;
    }
    return value;
  }
  std::string path(std::string_view name) const {
    return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
  }
  Status& status() { return status_; }

 private:
  static bool is_count(const Json& value) {
    return value.is_integer() && value.as_integer() >= 0 && value.as_integer() <= kNumberMax;
  }
  const Json* find(std::string_view name) const {
    if (!status_.ok()) return nullptr;
    const Json* value = json_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  void fail(std::string_view name) {
    if (status_.ok())
      status_ = Error(Code::kCorrupt,
                      "the saved state is damaged at " + (name.empty() ? path_ + " " : path(name)));
  }

  const Json& json_;
  const std::string path_;
  Status& status_;
};

Counters counters_of(const Json& json, const std::string& path, Status& status) {
  Counters out;
  ObjectReader in(json, path, status);
  in.text("since", out.since);
  in.number("answers", out.answers);
  in.number("failures", out.failures);
  in.number("hard", out.hard);
  in.number("agreed", out.agreed);
  in.number("baseAnswers", out.base_answers);
  in.number("baseHard", out.base_hard);
  in.numbers("scores", out.scores);
  return out;
}

Tally tally_of(const Json& json, const std::string& path, Status& status) {
  Tally out;
  ObjectReader in(json, path, status);
  if (const Json* marks = in.object("marks"))
    for (const auto& [node, counters] : marks->as_object())
      out.marks.emplace(node, counters_of(counters, path + ".marks", status));
  if (const Json* carried = in.object("carried"))
    out.carried = counters_of(*carried, path + ".carried", status);
  return out;
}

ServedVersion served_of(const Json& json, const std::string& path, Status& status) {
  ServedVersion out;
  ObjectReader in(json, path, status);
  in.text("version", out.version);
  in.number("round", out.round);
  return out;
}

RoundRecord record_of(const Json& json, const std::string& path, Status& status) {
  RoundRecord out;
  ObjectReader in(json, path, status);
  in.number("round", out.round);
  in.choice("outcome", out.outcome, kOutcomes);
  in.flag("rolledBack", out.rolled_back);
  in.text("reason", out.reason);
  in.text("message", out.message);
  in.text("trigger", out.trigger);
  in.text("base", out.base);
  in.text("version", out.version);
  in.text("digest", out.digest);
  in.number("samples", out.samples);
  in.number("attempts", out.attempts);
  in.real("baseValue", out.base_value);
  in.real("value", out.value);
  in.real("gain", out.gain);
  in.real("probability", out.probability);
  in.real("forgetting", out.forgetting);
  in.time("started", out.started);
  in.time("ended", out.ended);
  return out;
}

Transition transition_of(const Json& json, const std::string& path, Status& status) {
  Transition out;
  ObjectReader in(json, path, status);
  in.number("round", out.round);
  in.choice("stage", out.stage, kStages);
  in.choice("phase", out.phase, kPhases);
  in.time("at", out.at);
  in.text("reason", out.reason);
  in.text("message", out.message);
  return out;
}

void read_round(ObjectReader& in, State& out) {
  in.choice("stage", out.stage, kStages);
  in.choice("phase", out.phase, kPhases);
  in.time("since", out.since);
  in.text("message", out.message);
  in.number("round", out.round);
  in.number("attempt", out.attempt);
  in.time("attemptSince", out.attempt_since);
  in.number("attempts", out.attempts);
  in.text("trigger", out.trigger);
  in.text("base", out.base);
  in.text("candidate", out.candidate);
  in.text("digest", out.digest);
  in.time("started", out.started);
  in.number("samplesAtStart", out.samples_at_start);
  in.number("selected", out.selected);
  if (const Json* verdict = in.object("verdict")) out.verdict = verdict_of(*verdict);
  in.texts("rolled", out.rolled);
  in.time("rolledAt", out.rolled_at);
  if (const Json* trial = in.object("trial"))
    out.trial = tally_of(*trial, in.path("trial"), in.status());
}

void read_jobs_memory(ObjectReader& in, State& out) {
  Status& status = in.status();
  const auto served = [&](const Json& item, const std::string& path) {
    return served_of(item, path, status);
  };
  if (const Json* serving = in.object("serving"))
    out.serving = served(*serving, in.path("serving"));
  in.list("previous", out.previous, served);
  in.time("servingSince", out.serving_since);
  in.number("lastVersion", out.last_version);
  in.number("used", out.used);
  in.number("samplesSeen", out.samples_seen);
  in.number("settled", out.settled);
  in.numbers("consumed", out.consumed);
  in.numbers("refused", out.refused);
  in.list("starts", out.starts, [&](const Json& item, const std::string& path) {
    const auto time = parse_time(item.as_string());
    if (!time && status.ok())
      status = Error(Code::kCorrupt, "the saved state is damaged at " + path);
    return time.value_or(WallTime{});
  });
  WallTime ended{};
  in.time("ended", ended);
  if (ended != WallTime{}) out.ended = ended;
  in.number("failedInARow", out.failed_in_a_row);
  in.text("trainRequest", out.train_request);
  in.text("rollbackRequest", out.rollback_request);
  in.list("rounds", out.rounds,
          [&](const Json& item, const std::string& path) { return record_of(item, path, status); });
  in.list("history", out.history, [&](const Json& item, const std::string& path) {
    return transition_of(item, path, status);
  });
}

void read_measurements(ObjectReader& in, State& out) {
  in.flag("watched", out.watched);
  if (const Json* live = in.object("live"))
    out.live = tally_of(*live, in.path("live"), in.status());
  in.number("liveWindows", out.live_windows);
  in.real("hardShareBefore", out.hard_share_before);
  if (const Json* answers = in.object("answers"))
    out.answers = tally_of(*answers, in.path("answers"), in.status());
  in.numbers("reference", out.reference);
  in.numbers("recent", out.recent);
  in.real("hardShare", out.hard_share);
  if (const Json* detector = in.object("pageHinkley"))
    out.page_hinkley = page_hinkley_of(*detector);
}

}  // namespace

std::string_view to_string(Stage stage) { return choice_name(kStages, stage); }
std::string_view to_string(Phase phase) { return choice_name(kPhases, phase); }
std::string_view to_string(Outcome outcome) { return choice_name(kOutcomes, outcome); }

Json to_json(const RoundRecord& record) {
  ObjectWriter out;
  out.number("round", record.round);
  out.text("outcome", std::string(to_string(record.outcome)));
  out.flag("rolledBack", record.rolled_back);
  out.text("reason", record.reason);
  out.text("message", record.message);
  out.text("trigger", record.trigger);
  out.text("base", record.base);
  out.text("version", record.version);
  out.text("digest", record.digest);
  out.number("samples", record.samples);
  out.number("attempts", record.attempts);
  out.real("baseValue", record.base_value);
  out.real("value", record.value);
  out.real("gain", record.gain);
  out.real("probability", record.probability);
  out.real("forgetting", record.forgetting);
  out.time("started", record.started);
  out.time("ended", record.ended);
  return out.take();
}

Json to_json(const Transition& transition) {
  ObjectWriter out;
  out.number("round", transition.round);
  out.text("stage", std::string(to_string(transition.stage)));
  out.text("phase", std::string(to_string(transition.phase)));
  out.time("at", transition.at);
  out.text("reason", transition.reason);
  out.text("message", transition.message);
  return out.take();
}

Json to_json(const State& state) {
  ObjectWriter out;
  out.number("format", kFormat);
  out.text("stage", std::string(to_string(state.stage)));
  out.text("phase", std::string(to_string(state.phase)));
  out.time("since", state.since);
  out.text("message", state.message);
  out.number("round", state.round);
  out.number("attempt", state.attempt);
  out.time("attemptSince", state.attempt_since);
  out.number("attempts", state.attempts);
  out.text("trigger", state.trigger);
  out.text("base", state.base);
  out.text("candidate", state.candidate);
  out.text("digest", state.digest);
  out.time("started", state.started);
  out.number("samplesAtStart", state.samples_at_start);
  out.number("selected", state.selected);
  if (state.verdict) out.part("verdict", to_json(*state.verdict));
  const auto text = [](const std::string& value) { return Json(value); };
  out.list("rolled", state.rolled, text);
  out.time("rolledAt", state.rolled_at);
  out.part("serving", served_json(state.serving));
  out.list("previous", state.previous, served_json);
  out.time("servingSince", state.serving_since);
  out.number("lastVersion", state.last_version);
  out.number("used", state.used);
  out.number("samplesSeen", state.samples_seen);
  out.number("settled", state.settled);
  out.numbers("consumed", state.consumed);
  out.numbers("refused", state.refused);
  out.list("starts", state.starts, [](WallTime time) { return Json(time_text(time)); });
  if (state.ended) out.time("ended", *state.ended);
  out.number("failedInARow", state.failed_in_a_row);
  out.text("trainRequest", state.train_request);
  out.text("rollbackRequest", state.rollback_request);
  out.flag("watched", state.watched);
  out.part("live", tally_json(state.live));
  out.number("liveWindows", state.live_windows);
  out.real("hardShareBefore", state.hard_share_before);
  out.part("answers", tally_json(state.answers));
  out.numbers("reference", state.reference);
  out.numbers("recent", state.recent);
  out.real("hardShare", state.hard_share);
  if (state.page_hinkley != PageHinkley{}) out.part("pageHinkley", to_json(state.page_hinkley));
  out.list("rounds", state.rounds, [](const RoundRecord& record) { return to_json(record); });
  out.list("history", state.history, [](const Transition& item) { return to_json(item); });
  Json json = out.take();
  // An empty tally means that a trial runs.
  if (state.trial) json.set("trial", tally_json(*state.trial));
  return json;
}

Result<State> parse_state(const Json& json) {
  State out;
  if (json.is_null() || (json.is_object() && json.empty())) return out;
  if (json["format"].as_integer() != kFormat)
    return Error(Code::kCorrupt, "the saved state has another format");
  Status status;
  ObjectReader in(json, "", status);
  read_round(in, out);
  read_jobs_memory(in, out);
  read_measurements(in, out);
  TRY_VOID(std::move(status));
  return out;
}

Json to_json(const Assignment& assignment) {
  const auto numbers = [](const std::vector<std::int64_t>& values) {
    Json out = Json::array();
    for (const std::int64_t value : values) out.push_back(value);
    return out;
  };
  return Json::object({{"stage", to_string(assignment.stage)},
                       {"round", assignment.round},
                       {"attempt", assignment.attempt},
                       {"base", assignment.base},
                       {"version", assignment.version},
                       {"settled", assignment.settled},
                       {"consumed", numbers(assignment.consumed)},
                       {"refused", numbers(assignment.refused)}});
}

}  // namespace varda::incremental
