// Runs the tables of this folder on three checkers: the API server (in memory), the validation of
// the kinds, and the CEL of the generated CRDs. README.md describes the tables.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "cel.h"
#include "codec/json.h"
#include "codec/yaml.h"

namespace varda::conformance {
namespace {

using codec::Json;
namespace fs = std::filesystem;

std::string replaced(const std::string& text, std::string_view what, const std::string& by) {
  std::string out = text;
  for (std::size_t at = out.find(what); at != std::string::npos;
       at = out.find(what, at + by.size()))
    out.replace(at, what.size(), by);
  return out;
}

// Expands the abbreviations of long values in a case. value_of() in table.py does the same for
// `run`.
Json value_of(const Json& pattern, const std::string& index = "") {
  if (pattern.is_string())
    return index.empty() ? pattern : Json(replaced(pattern.as_string(), "${i}", index));
  if (pattern.is_array()) {
    Json list = Json::array();
    for (const Json& item : pattern.as_array()) list.push_back(value_of(item, index));
    return list;
  }
  if (!pattern.is_object()) return pattern;
  const std::int64_t times = pattern["times"].as_integer();
  if (pattern.contains("$repeat")) {
    std::string text = pattern["before"].as_string();
    for (std::int64_t i = 0; i < times; ++i) text += pattern["$repeat"].as_string();
    return text + pattern["after"].as_string();
  }
  if (pattern.contains("$items")) {
    Json list = Json::array();
    for (std::int64_t i = 0; i < times; ++i)
      list.push_back(value_of(pattern["$items"], std::to_string(i)));
    return list;
  }
  Json out = Json::object();
  if (pattern.contains("$members")) {
    for (std::int64_t i = 0; i < times; ++i)
      out.set("k" + std::to_string(i), value_of(pattern["$members"], std::to_string(i)));
    return out;
  }
  if (pattern.contains("$null")) return nullptr;
  for (const auto& [name, member] : pattern.as_object()) out.set(name, value_of(member, index));
  return out;
}

// Sets the value at a path such as spec.models[0].key. Null removes the value.
void assign(Json& target, std::string_view path, const Json& pattern) {
  Json* at = &target;
  for (;;) {
    const bool index = path.front() == '[';
    if (index) path.remove_prefix(1);
    const std::size_t end = std::min(path.find_first_of(index ? "]" : ".["), path.size());
    const std::string step(path.substr(0, end));
    path.remove_prefix(
        std::min(end + (index || (end < path.size() && path[end] == '.') ? 1 : 0), path.size()));
    if (index && path.starts_with('.')) path.remove_prefix(1);
    if (path.empty()) {
      if (index) {
        const std::size_t place = std::stoul(step);
        if (place == at->size()) at->push_back(nullptr);
        at->array_items().at(place) = value_of(pattern);
      } else if (pattern.is_null()) {
        at->erase(step);
      } else {
        at->set(step, value_of(pattern));
      }
      return;
    }
    at = index ? &at->array_items().at(std::stoul(step)) : &(*at)[step];
  }
}

struct Case {
  std::string name;
  bool status = false;  // the case changes status, through the status subresource
  std::string causes;
  bool taken = false, taken_by_cluster = false;
  Json set;
};

std::string print(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::string print_causes(const Json& causes) {  // from a table
  std::vector<std::string> lines;
  for (const Json& cause : causes.as_array()) {
    const Json::Array& parts = cause.as_array();
    lines.push_back(parts.at(0).as_string() + " | " + parts.at(1).as_string() + " | " +
                    parts.at(2).as_string());
  }
  return print(std::move(lines));
}

struct Table {
  const api::Kind* kind = nullptr;
  Json base;
  std::vector<Case> cases;

  Json object_of(const std::vector<const Case*>& changed_by) const {
    Json object = base;
    for (const Case* one : changed_by) {
      for (const auto& [path, pattern] : one->set.as_object()) assign(object, path, pattern);
    }
    return object;
  }
};

fs::path folder() { return fs::path(VARDA_SOURCE_DIR) / "tests/conformance/validation"; }

Table read(const api::Kind& kind) {
  std::ifstream in(folder() / (kind.resource.group + "_" + kind.resource.plural + ".json"));
  auto parsed = codec::parse_json(std::string((std::istreambuf_iterator<char>(in)), {}));
  EXPECT_TRUE(parsed.ok()) << kind.resource.kind << ": there is no table, or it cannot be read";
  Table table;
  table.kind = &kind;
  if (!parsed.ok()) return table;
  const Json file = std::move(parsed).value();
  EXPECT_EQ(file["crd"].as_string(), kind.resource.group_resource());
  table.base = file["base"];
  std::map<std::string, Json> variants;
  for (const Json& variant : file["variants"].as_array())
    variants[variant["name"].as_string()] = variant["set"];
  for (const char* part : {"cases", "schema"}) {
    for (const Json& one : file[part].as_array()) {
      Case made{.name = one["name"].as_string(), .set = Json::object()};
      if (one.contains("of")) made.set = variants.at(one["of"].as_string());
      for (const auto& [path, pattern] : one["set"].as_object()) made.set.set(path, pattern);
      made.causes = print_causes(one["causes"]);
      made.taken = one["causes"].empty();
      made.taken_by_cluster = one[one.contains("cluster") ? "cluster" : "causes"].empty();
      for (const auto& [path, pattern] : made.set.as_object())
        made.status = made.status || path.starts_with("status");
      table.cases.push_back(std::move(made));
    }
  }
  return table;
}

const Table& table_of(const api::Kind& kind) {
  static std::map<const api::Kind*, Table> read_before;
  const auto known = read_before.find(&kind);
  return known != read_before.end() ? known->second
                                    : read_before.emplace(&kind, read(kind)).first->second;
}

class Validation : public testing::TestWithParam<const api::Kind*> {
 protected:
  const Table& table_ = table_of(*GetParam());
};

std::string kind_name(const testing::TestParamInfo<const api::Kind*>& info) {
  return (info.param->resource.group == "sedna.io" ? "Sedna" : "") + info.param->resource.kind;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Validation, testing::ValuesIn(api::kinds()), kind_name);

std::string answer(const apiserver::InMemoryApiServer::Reply& reply) {
  if (reply.status == 200 || reply.status == 201) return "";
  std::vector<std::string> lines;
  for (const Json& cause : reply.body.at("details/causes").as_array()) {
    lines.push_back(cause["field"].as_string() + " | " + cause["reason"].as_string() + " | " +
                    cause["message"].as_string());
  }
  if (reply.status != 422 || lines.empty())
    lines.push_back(" | " + std::to_string(reply.status) + " | " +
                    reply.body["message"].as_string());
  return print(std::move(lines));
}

TEST_P(Validation, ServerAnswersMatchTheTable) {
  apiserver::InMemoryApiServer::Options options;
  for (const api::NativeRule& rule : api::native_rules())
    options.server.rules[{rule.group, rule.kind}] = rule.check;
  apiserver::InMemoryApiServer server(std::move(options));
  for (const Json& crd : api::crds()) server.install_crds(codec::write_yaml(crd));
  const std::string path = GetParam()->resource.path("default");
  Json anchor = table_.base;
  anchor.erase("status");
  anchor["metadata"].set("name", "anchor");
  ASSERT_EQ(server.post(path, anchor).status, 201) << server.post(path, anchor).text;
  for (const Case& one : table_.cases) {
    apiserver::InMemoryApiServer::Reply reply;
    Json object = table_.object_of({&one});
    if (one.status) {
      const Json change = Json::array({Json::object(
          {{"op", "add"}, {"path", "/status"}, {"value", std::as_const(object)["status"]}})});
      reply = server.call("PATCH", path + "/anchor/status?dryRun=All", change,
                          "application/json-patch+json");
    } else {
      object.erase("status");
      reply = server.post(path + "?dryRun=All", object);
    }
    EXPECT_EQ(answer(reply), one.causes)
        << one.name << "\n(tests/conformance/run --write ours takes what the server in varda says)";
  }
}

// The answers of the cluster come from a kube-apiserver.
TEST_P(Validation, ClusterAndVardaAcceptTheSameCases) {
  for (const Case& one : table_.cases) EXPECT_EQ(one.taken_by_cluster, one.taken) << one.name;
}

// The command line validates objects without a server.
TEST_P(Validation, KindValidationAcceptsTheCasesOfTheTable) {
  for (const Case& one : table_.cases) {
    Json object = table_.object_of({&one});
    if (!one.status) object.erase("status");
    if (std::as_const(object).at("metadata/name").as_string().empty())
      continue;  // only a server checks this
    auto causes = api::validate(*table_.kind, object);
    if (causes.empty() && table_.kind->native != nullptr)
      causes = table_.kind->native(Json(), object);
    EXPECT_EQ(causes.empty(), one.taken)
        << one.name
        << (causes.empty() ? "" : ": " + causes.front().field + " " + causes.front().message);
  }
}

api::Schema without_rules(api::Schema schema) {
  schema.rules.clear();
  for (api::Property& property : schema.properties)
    property.schema = without_rules(property.schema);
  if (schema.items) schema.items = std::make_shared<api::Schema>(without_rules(*schema.items));
  return schema;
}

// True if the value has the structure that an API server requires before it evaluates rules.
bool of_the_right_shape(const api::Schema& without_rules, const Json& object) {
  static const std::set<std::string> kBlocking{"FieldValueNotSupported", "FieldValueRequired",
                                               "FieldValueTooLong", "FieldValueTooMany",
                                               "FieldValueTypeInvalid"};
  const auto causes = api::validate(without_rules, object);
  return std::none_of(causes.begin(), causes.end(),
                      [](const auto& cause) { return kBlocking.contains(cause.reason); });
}

void drop_nulls(Json& value) {
  if (value.is_array()) {
    for (Json& item : value.array_items()) drop_nulls(item);
  }
  if (!value.is_object()) return;
  std::vector<std::string> nulls;
  for (auto& [name, member] : value.object_members()) {
    if (member.is_null()) nulls.push_back(name);
    drop_nulls(member);
  }
  for (const std::string& name : nulls) value.erase(name);
}

struct RuleResults {
  std::set<bool> results;
  // Values already checked. Most cases differ from the base in only one place.
  std::set<std::string> of;
};
using ResultsByRule = std::map<const api::Rule*, RuleResults>;

void compare_rules(const api::Schema& schema, const Json& value, const std::string& what,
                   ResultsByRule& by_rule) {
  const std::string shown = schema.rules.empty() ? "" : codec::write_json(value);
  for (const api::Rule& rule : schema.rules) {
    if (!by_rule[&rule].of.insert(shown).second) continue;
    const bool native = rule.check(value).empty();
    const auto cel = evaluate_cel(rule.cel, value);
    ASSERT_TRUE(cel.has_value()) << what << ": evaluation of " << rule.cel << " fails";
    EXPECT_EQ(*cel, native) << what << ": " << rule.cel;
    by_rule[&rule].results.insert(native);
  }
  for (const api::Property& property : schema.properties) {
    if (const Json* member = value.find(property.name);
        member != nullptr && property.name != "metadata")
      compare_rules(property.schema, *member, what, by_rule);
  }
  if (!schema.items) return;
  for (const Json& item : value.as_array()) compare_rules(*schema.items, item, what, by_rule);
}

struct PlacedRule {
  std::string path;
  const api::Rule* rule = nullptr;
};

void all_rules(const api::Schema& schema, const std::string& path, std::vector<PlacedRule>& out) {
  for (const api::Rule& rule : schema.rules) out.push_back({path, &rule});
  for (const api::Property& property : schema.properties)
    all_rules(property.schema, (path.empty() ? "" : path + ".") + property.name, out);
  if (schema.items) all_rules(*schema.items, path + "[]", out);
}

TEST_P(Validation, CelAndNativeRulesAgreeAndEveryRuleHasACase) {
  std::vector<PlacedRule> rules;
  all_rules(*table_.kind->schema, "", rules);
  if (rules.empty()) return;
  const api::Schema bare = without_rules(*table_.kind->schema);
  ResultsByRule by_rule;
  const auto compare = [&](Json object, const std::string& what) {
    drop_nulls(object);
    if (std::as_const(object).at("metadata/name").as_string().empty() ||
        !of_the_right_shape(bare, object))
      return;
    compare_rules(*table_.kind->schema, object, what, by_rule);
  };
  for (const Case& one : table_.cases) compare(table_.object_of({&one}), one.name);
  for (const auto& [place, rule] : rules) {
    EXPECT_TRUE(by_rule[rule].results.contains(false))
        << "no case breaks, at " << place << ": " << rule->message << "\n"
        << rule->cel;
    EXPECT_TRUE(by_rule[rule].results.contains(true))
        << "no case keeps, at " << place << ": " << rule->message << "\n"
        << rule->cel;
  }
  // Combines two random cases each.
  std::vector<const Case*> plain;
  for (const Case& one : table_.cases) {
    // A value of another type hides behind the limit of causes.
    if (!one.status && one.set.find("spec") == nullptr && !one.name.ends_with(": type"))
      plain.push_back(&one);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const Case* first = plain[random() % plain.size()];
    const Case* second = plain[random() % plain.size()];
    // Skip pairs in which one case changes a part of the other's value.
    const auto meets = [](const Case& one, const Case& other) {
      for (const auto& [path, pattern] : one.set.as_object()) {
        for (const auto& [further, unused] : other.set.as_object()) {
          if (path.starts_with(further) || further.starts_with(path)) return true;
        }
      }
      return false;
    };
    if (meets(*first, *second)) continue;
    compare(table_.object_of({first, second}), first->name + " and " + second->name);
  }
}

// The path in a schema: "spec.models[0].key" -> "spec.models[].key", "spec.nodeSelector.k" ->
// "spec.nodeSelector.*".
std::string shape(const api::Schema& root, std::string_view path) {
  std::string out;
  const api::Schema* at = &root;
  std::string step;
  const auto go = [&] {
    if (step.empty()) return;
    const api::Property* property = at->find(step);
    out += (out.empty() ? "" : ".") +
           (property != nullptr || !at->additional ? step : std::string("*"));
    at = property != nullptr ? &property->schema : at->additional ? at->additional.get() : at;
    step.clear();
  };
  for (const char c : path) {
    if (c == '.' || c == '[') go();
    if (c == '[') {
      out += "[]";
      if (at->items) at = at->items.get();
    }
    if (c != '.' && c != '[' && c != ']' &&
        !(out.ends_with("[]") && step.empty() && std::isdigit(static_cast<unsigned char>(c))))
      step += c;
  }
  go();
  return out;
}

TEST_P(Validation, EveryConstraintOfTheSchemaHasABreakingCase) {
  std::set<std::string> broken;
  for (const Case& one : table_.cases) {
    const std::size_t colon = one.name.find(": ");
    if (!one.taken && colon != std::string::npos)
      broken.insert(shape(*table_.kind->schema, one.name.substr(0, colon)) +
                    one.name.substr(colon));
  }
  const std::function<void(const api::Schema&, const std::string&)> visit =
      [&](const api::Schema& schema, const std::string& path) {
        const auto need = [&](bool needed, const char* what) {
          if (needed) {
            EXPECT_TRUE(broken.contains(path + ": " + what))
                << "no case for " << path << ": " << what;
          }
        };
        using Type = api::Schema::Type;
        need(
            schema.type != Type::kAny && !(schema.type == Type::kObject && schema.preserve_unknown),
            "type");
        need(!schema.one_of.empty(), "enum");
        need(!schema.pattern.empty(), "pattern");
        need(schema.length_min.value_or(0) > 0 && schema.one_of.empty(), "minLength");
        need(schema.length_max && schema.one_of.empty(), "maxLength");
        need(schema.minimum.has_value(), "minimum");
        need(schema.maximum.has_value(), "maximum");
        need(schema.items_min.value_or(0) > 0, "minItems");
        need(schema.items_max.has_value(),
             schema.type == Type::kArray ? "maxItems" : "maxProperties");
        need(!schema.list_keys.empty(), "list-map keys");
        need(schema.format == "date-time", "format");
        for (const api::Property& property : schema.properties) {
          const std::string below = (path.empty() ? "" : path + ".") + property.name;
          if (below == "metadata") continue;
          if (property.required) {
            EXPECT_TRUE(broken.contains(below + ": required"))
                << "no case for " << below << ": required";
          }
          visit(property.schema, below);
        }
        if (schema.items) visit(*schema.items, path + "[]");
        if (schema.additional) visit(*schema.additional, path + ".*");
      };
  for (const char* part : {"spec", "status"}) {
    if (const api::Property* property = table_.kind->schema->find(part))
      visit(property->schema, part);
  }
}

TEST(Tables, EveryKindHasATable) {
  std::set<std::string> wanted{"wordings.json"}, found;
  for (const api::Kind* kind : api::kinds())
    wanted.insert(kind->resource.group + "_" + kind->resource.plural + ".json");
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() == ".json") found.insert(entry.path().filename());
  }
  EXPECT_EQ(found, wanted);
}

TEST(Cel, ExpressionsEvaluateAsInACluster) {
  const Json self =
      codec::parse_json(
          R"({"a": "x", "n": 2, "l": [{"k": "1"}, {"k": "2"}, {}], "e": [], "m": {"ä": 1}})")
          .value();
  for (const auto& [rule, wanted] : std::map<std::string, std::optional<bool>>{
           {"has(self.a) && self.a != ''", true},
           {"has(self.b)", false},
           {"self.b == ''", std::nullopt},
           {"self.b == '' || self.n <= 2", true},
           {"self.b == '' || self.n < 2", std::nullopt},
           {"self.b == '' && self.n < 2", false},
           {"!has(self.b) || self.b == 'x'", true},
           {"self.n <= 1", false},
           {"self.a in ['x', 'y']", true},
           {"!(self.a in ['y'])", true},
           {"size(self.l) > 2 && size(self.e) == 0", true},
           {"self.e.all(i, i == 1)", true},
           {"self.l.all(i, has(i.k))", false},
           {"self.l.all(i, !has(i.k) || i.k.matches('^[12]$'))", true},
           {"self.l.exists(i, has(i.k) && i.k == '2')", true},
           {"self.l.all(i, !has(i.k) || self.l.exists_one(j, has(j.k) && j.k == i.k))", true},
           {"self.a.matches('^y')", false},
           {"self.n == 2 ? self.a == 'x' : self.b == ''", true},
           {"(self.b == '' ? 1 : 2) == 1", std::nullopt},
           {"self.l[size(self.l) - 1] == self.l[2] && !has(self.l[2].k)", true},
           {"self.l[3] == 1", std::nullopt},
           {"self.l.filter(i, has(i.k)).map(i, i.k == '1' ? 0 : i.k == '2' ? 1 : 2).isSorted()",
            true},
           {"self.l.filter(i, has(i.k)).map(i, i.k == '1' ? 1 : 0).isSorted()", false},
           {"self.l.map(i, i.k == '1' ? 1 : 0).isSorted()", std::nullopt},
           {"self.e.map(i, i).isSorted()", true},
           {"self.m.all(k, size(k) == 1)", true},
           {"self.m.all(k, size(k) > 1)", false},
           {"double('0.5') >= 0.0 && double('5e-1') <= 0.5", true},
           {"double('x') >= 0.0", std::nullopt},
           {"duration('2s') <= duration('2000ms') && duration('1m') <= duration('59s')", false},
           {"duration(self.a) <= duration('10m')", std::nullopt},
       }) {
    EXPECT_EQ(evaluate_cel(rule, self), wanted) << rule;
  }
}

}  // namespace
}  // namespace varda::conformance
