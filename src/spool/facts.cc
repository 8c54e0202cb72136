#include "spool/facts.h"

#include <algorithm>
#include <cmath>

#include "codec/text.h"
#include "spool/id.h"

namespace varda::spool {
namespace {

using codec::Json;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kScoresMax = 16;
constexpr std::size_t kTextBytesMax = 4096;

Error wrong(std::string_view where, std::string_view what) {
  return Error(Code::kInvalid, std::string(where) + ": " + std::string(what));
}

Result<std::string> text(const Json& object, std::string_view name,
                         std::string_view otherwise = "") {
  const Json* value = object.find(name);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) return wrong(name, "must be a text");
  if (value->as_string().size() > kTextBytesMax) return wrong(name, "is too long");
  return value->as_string();
}

Result<std::int64_t> whole(const Json& object, std::string_view name, std::int64_t otherwise) {
  const Json* value = object.find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_integer() || value->as_integer() < 0)
    return wrong(name, "must be a whole number from 0 on");
  return value->as_integer();
}

Result<ClassScore> class_score(const Json& json) {
  ClassScore out;
  TRY(out.label, text(json, "label"));
  if (!json["score"].is_number()) return wrong("score", "must be a number");
  out.score = json["score"].as_double();
  return out;
}

Result<Answer> answer(const Json& json) {
  Answer out;
  TRY(out.tier, text(json, "tier"));
  TRY(out.version, text(json, "version"));
  const Json::Array& best = json["best"].as_array();
  if (best.size() > kBestMax) return wrong("best", "has too many items");
  for (const Json& one : best) {
    TRY(ClassScore score, class_score(one));
    out.best.push_back(std::move(score));
  }
  return out;
}

Json to_json(const ClassScore& score) {
  return Json::object({{"label", score.label}, {"score", score.score}});
}

}  // namespace

bool is_class_name(std::string_view name) {
  return !name.empty() && name.size() <= kLabelBytesMax && name.front() != '.' &&
         codec::is_utf8(name) && std::none_of(name.begin(), name.end(), [](char c) {
           return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

bool is_format(std::string_view suffix) {
  return suffix == Facts::kPng || suffix == Facts::kJpeg || suffix == Facts::kNpy;
}

Result<Facts> parse_facts(std::string_view source) {
  if (source.size() > kFactsBytesMax) return Error(Code::kInvalid, "the facts are too long");
  TRY(const Json json, codec::parse_json(source, {.depth_max = 8}));
  if (!json.is_object()) return Error(Code::kInvalid, "must be an object");
  if (!json["version"].is_integer() || json["version"].as_integer() != kVersion)
    return wrong("version", "must be " + std::to_string(kVersion));
  Facts out;
  TRY(out.id, text(json, "id"));
  if (!is_id(out.id)) return wrong("id", "must be 26 digits of base 32");
  TRY(out.time, text(json, "time"));
  TRY(out.model, text(json, "model"));
  TRY(out.model_version, text(json, "modelVersion"));
  TRY(out.reason, text(json, "reason"));
  if (out.reason != Facts::kHard && out.reason != Facts::kControl)
    return wrong("reason", "must be hard or control");
  TRY(out.policy, text(json, "policy"));
  TRY(out.format, text(json, "format"));
  if (!is_format(out.format)) return wrong("format", "must be png, jpg or npy");
  TRY(const std::int64_t bytes, whole(json, "bytes", 0));
  out.bytes = static_cast<std::uint64_t>(bytes);
  TRY(out.row, whole(json, "row", 0));
  TRY(out.rows, whole(json, "rows", 1));
  const Json::Object& scores = json["scores"].as_object();
  if (scores.size() > kScoresMax) return wrong("scores", "has too many members");
  for (const auto& [name, value] : scores) {
    if (!value.is_number()) return wrong("scores." + name, "must be a number");
    out.scores[name] = value.as_double();
  }
  const Json::Array& answers = json["answers"].as_array();
  if (answers.size() > kAnswersMax) return wrong("answers", "has too many items");
  for (const Json& one : answers) {
    TRY(Answer parsed, answer(one));
    out.answers.push_back(std::move(parsed));
  }
  if (const Json* label = json.find("pseudoLabel"); label != nullptr && !label->is_null()) {
    TRY(const ClassScore score, class_score(*label));
    PseudoLabel given{.label = score.label, .score = score.score, .tier = ""};
    TRY(given.tier, text(*label, "tier"));
    out.pseudo_label = std::move(given);
  }
  return out;
}

Json to_json(const Facts& facts) {
  Json out = Json::object({{"version", kVersion},
                           {"id", facts.id},
                           {"time", facts.time},
                           {"model", facts.model},
                           {"modelVersion", facts.model_version},
                           {"reason", facts.reason},
                           {"policy", facts.policy},
                           {"format", facts.format},
                           {"bytes", facts.bytes},
                           {"row", facts.row},
                           {"rows", facts.rows}});
  Json scores = Json::object();
  for (const auto& [name, value] : facts.scores)
    if (std::isfinite(value)) scores.set(name, value);  // JSON lacks the others
  out.set("scores", std::move(scores));
  Json answers = Json::array();
  for (const Answer& answer : facts.answers) {
    Json best = Json::array();
    for (const ClassScore& one : answer.best)
      if (std::isfinite(one.score)) best.push_back(to_json(one));
    answers.push_back(Json::object(
        {{"tier", answer.tier}, {"version", answer.version}, {"best", std::move(best)}}));
  }
  out.set("answers", std::move(answers));
  if (facts.pseudo_label)
    out.set("pseudoLabel", Json::object({{"label", facts.pseudo_label->label},
                                         {"score", facts.pseudo_label->score},
                                         {"tier", facts.pseudo_label->tier}}));
  return out;
}

}  // namespace varda::spool
