#include "tiers/policy_table.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"
#include "codec/json.h"
#include "codec/text.h"

namespace varda::tiers {
namespace {

constexpr std::string_view kSedna = "Sedna, hard example mining";
constexpr std::string_view kOwn = "Varda";

constexpr ParameterRow output(std::string_view what) {
  return {.key = "output", .kind = ParameterKind::kText, .initial = {}, .what = what};
}

constexpr std::array kThreshold{
    ParameterRow{.key = "threshold",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.5",
                 .what = "A request with a lower mean score is hard."},
    output("The output with the scores of the boxes. Default: the output named scores, or the only "
           "output that fits."),
};
constexpr std::array kCrossEntropy{
    ParameterRow{
        .key = "threshold_cross_entropy",
        .kind = ParameterKind::kNumber,
        .initial = "0.5",
        .what = "A request with a lower confidence is hard. The confidence is 1 + Σ p·ln p / ln n: "
                "1 if one class has all the probability, 0 if all n classes share it equally."},
    output("The output with the probabilities. Default: the output named probabilities, or the "
           "only output that fits."),
};
constexpr std::array kIbt{
    ParameterRow{.key = "threshold_img",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.5",
                 .what = "The share of boxes that must score above threshold_box. An image is hard "
                         "if the share of uncertain boxes is at least 1 − threshold_img."},
    ParameterRow{.key = "threshold_box",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.5",
                 .what = "A box whose score is at most this counts as uncertain."},
    output("The output with the scores of the boxes. Default: the output named scores, or the only "
           "output that fits."),
};
constexpr std::array kRandom{
    ParameterRow{.key = "random_ratio",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.3",
                 .what = "The share of requests that are hard."},
};
constexpr std::array kMargin{
    ParameterRow{.key = "threshold_margin",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.5",
                 .what = "A request is hard if the best class leads the second by less."},
    output("The output with the probabilities. Default: the output named probabilities, or the "
           "only output that fits."),
};
constexpr std::array kLeastConfidence{
    ParameterRow{.key = "threshold_confidence",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.5",
                 .what = "A request whose best class has a lower probability is hard."},
    output("The output with the probabilities. Default: the output named probabilities, or the "
           "only output that fits."),
};
constexpr std::array kEntropy{
    ParameterRow{.key = "threshold_entropy",
                 .kind = ParameterKind::kNumber,
                 .initial = "0.5",
                 .what =
                     "A request with a higher entropy is hard. The entropy is −Σ p·ln p / ln n: "
                     "0 if one class has all the probability, 1 if all n classes share it "
                     "equally."},
    output("The output with the probabilities. Default: the output named probabilities, or the "
           "only output that fits."),
};
constexpr std::array kEnergy{
    ParameterRow{.key = "threshold_energy",
                 .kind = ParameterKind::kNumber,
                 .initial = "5",
                 .min = 0,
                 .max = 1e6,
                 .what = "A request with a lower negative energy T·ln Σ exp(f / T) is hard."},
    ParameterRow{.key = "temperature",
                 .kind = ParameterKind::kNumber,
                 .initial = "1",
                 .min = 0.01,
                 .max = 1000,
                 .what = "The temperature T."},
    output("The output with the logits f, the values before softmax. Default: the output named "
           "logits."),
};
constexpr std::array kLabels{
    ParameterRow{.key = "labels",
                 .kind = ParameterKind::kTextList,
                 .initial = {},
                 .required = true,
                 .what = "The hard labels, separated by commas. Use a JSON list of strings if a "
                         "label contains a comma."},
    output("The output with the labels, best first, or with the probabilities. Default: the text "
           "output named labels. Otherwise the output with the probabilities, with the model's "
           "list of labels."),
};
constexpr std::array<std::string_view, 1> kCloudOnly{"CloudOnly"};
constexpr std::array<std::string_view, 1> kEdgeOnly{"EdgeOnly"};

constexpr std::array kTable{
    PolicyRow{.name = "Threshold",
              .input = PolicyInput::kBoxScores,
              .parameters = kThreshold,
              .formula = "hard if the mean of the scores of all boxes < threshold",
              .source = kSedna},
    PolicyRow{.name = "CrossEntropy",
              .input = PolicyInput::kClassProbabilities,
              .parameters = kCrossEntropy,
              .formula = "hard if 1 + Σ p·ln p / ln n < threshold_cross_entropy, over the "
                         "probabilities p of n classes",
              .source = kSedna},
    PolicyRow{
        .name = "IBT",
        .input = PolicyInput::kBoxScores,
        .parameters = kIbt,
        .formula =
            "hard if the share of boxes whose score ≤ threshold_box is at least 1 − threshold_img",
        .source = kSedna},
    PolicyRow{.name = "Random",
              .input = PolicyInput::kNothing,
              .parameters = kRandom,
              .formula = "hard with the probability random_ratio, whatever the request",
              .source = kSedna},
    PolicyRow{.name = "AlwaysCloud",
              .aliases = kCloudOnly,
              .input = PolicyInput::kNothing,
              .parameters = {},
              .formula = "always hard",
              .source = "Sedna, hard example mining: CloudOnly"},
    PolicyRow{.name = "NeverCloud",
              .aliases = kEdgeOnly,
              .input = PolicyInput::kNothing,
              .parameters = {},
              .formula = "never hard",
              .source = "Sedna, hard example mining: EdgeOnly"},
    PolicyRow{.name = "Margin",
              .input = PolicyInput::kClassProbabilities,
              .parameters = kMargin,
              .formula = "hard if p1 − p2 < threshold_margin, of the two greatest probabilities",
              .source = "margin sampling of active learning (Scheffer, Decomain, Wrobel 2001)"},
    PolicyRow{.name = "LeastConfidence",
              .input = PolicyInput::kClassProbabilities,
              .parameters = kLeastConfidence,
              .formula = "hard if p1 < threshold_confidence, the greatest probability",
              .source = "uncertainty sampling of active learning (Lewis, Gale 1994)"},
    PolicyRow{.name = "Entropy",
              .input = PolicyInput::kClassProbabilities,
              .parameters = kEntropy,
              .formula =
                  "hard if −Σ p·ln p / ln n > threshold_entropy, over the probabilities p of "
                  "n classes",
              .source = "entropy sampling of active learning (Settles 2009, section 3.1)"},
    PolicyRow{.name = "Energy",
              .input = PolicyInput::kClassLogits,
              .parameters = kEnergy,
              .formula = "hard if T·ln Σ exp(f / T) < threshold_energy, over the logits f",
              .source = "energy-based out-of-distribution detection (Liu and others 2020)"},
    PolicyRow{.name = "Labels",
              .input = PolicyInput::kTopLabel,
              .parameters = kLabels,
              .formula = "hard if the best label is one of labels",
              .source = kOwn},
};

/// The text for an error message: short, and valid UTF-8.
std::string shown(std::string_view text) {
  if (!codec::is_utf8(text)) return "bytes that are not UTF-8";
  if (text.size() > 64) return std::to_string(text.size()) + " bytes";
  return "'" + std::string(text) + "'";
}

std::string known_policies() {
  std::string out;
  for (const PolicyRow& row : kTable) {
    out += (out.empty() ? "" : ", ") + std::string(row.name);
    for (const std::string_view alias : row.aliases) out += " (or " + std::string(alias) + ")";
  }
  return out;
}

std::string known_keys(const PolicyRow& row) {
  if (row.parameters.empty()) return "it has no parameters";
  std::string out;
  for (const ParameterRow& parameter : row.parameters)
    out += (out.empty() ? "its parameters are " : ", ") + std::string(parameter.key);
  return out;
}

std::string unknown_policy(std::string_view name) {
  for (const PolicyRow& row : kTable) {
    if (equal_ignoring_case(row.name, name))
      return "unknown policy " + shown(name) + "; did you mean " + std::string(row.name) + "?";
    for (const std::string_view alias : row.aliases) {
      if (equal_ignoring_case(alias, name))
        return "unknown policy " + shown(name) + "; did you mean " + std::string(alias) + "?";
    }
  }
  return "unknown policy " + shown(name) + "; known policies: " + known_policies();
}

std::string unknown_key(const PolicyRow& row, std::string_view key) {
  for (const ParameterRow& parameter : row.parameters) {
    if (equal_ignoring_case(parameter.key, key))
      return "unknown parameter " + shown(key) + "; did you mean " + std::string(parameter.key) +
             "?";
  }
  return std::string(row.name) + " has no parameter " + shown(key) + "; " + known_keys(row);
}

/// Describes the fault of the value; empty if valid.
std::string value_fault(const ParameterRow& row, std::string_view value) {
  if (value.size() > kParameterValueBytesMax)
    return "must have at most " + std::to_string(kParameterValueBytesMax) + " bytes";
  switch (row.kind) {
    case ParameterKind::kNumber: {
      const auto number = parse_number(value, row.min, row.max);
      return number.ok() ? "" : number.error().message();
    }
    case ParameterKind::kText:
      if (value.empty()) return "must not be empty";
      return codec::is_utf8(value) ? "" : "must be UTF-8";
    case ParameterKind::kTextList: {
      const auto items = parse_text_list(value);
      return items.ok() ? "" : items.error().message();
    }
  }
  return {};
}

std::string bound(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

// Hand-written kNumberPattern.
bool is_number(std::string_view text) {
  constexpr std::size_t kDigitsMax = 20;
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t from = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - from;
  };
  const std::size_t whole = digits();
  std::size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    fraction = digits();
  }
  if (whole + fraction == 0 || whole > kDigitsMax || fraction > kDigitsMax) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const std::size_t exponent = digits();
    if (exponent == 0 || exponent > 2) return false;
  }
  return at == text.size();
}

}  // namespace

std::span<const PolicyRow> policy_table() { return kTable; }

const PolicyRow* find_policy(std::string_view name) {
  for (const PolicyRow& row : kTable) {
    if (row.name == name ||
        std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end())
      return &row;
  }
  return nullptr;
}

const ParameterRow* find_parameter(const PolicyRow& row, std::string_view key) {
  for (const ParameterRow& parameter : row.parameters) {
    if (parameter.key == key) return &parameter;
  }
  return nullptr;
}

std::vector<PolicyFault> check_policy(std::string_view name,
                                      std::span<const PolicyParameter> parameters) {
  std::vector<PolicyFault> faults;
  const PolicyRow* row = find_policy(name);
  if (row == nullptr) {
    faults.push_back(
        {"name",
         {},
         name.empty() ? "is required; known policies: " + known_policies() : unknown_policy(name)});
    return faults;
  }
  if (parameters.size() > kPolicyParametersMax) {
    faults.push_back(
        {"parameters", {}, "must have at most " + std::to_string(kPolicyParametersMax) + " items"});
    return faults;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const PolicyParameter& parameter = parameters[i];
    const std::string item = "parameters[" + std::to_string(i) + "]";
    const auto same = [&](const PolicyParameter& other) { return other.key == parameter.key; };
    const ParameterRow* known = find_parameter(*row, parameter.key);
    if (known == nullptr) {
      faults.push_back({item + ".key", i, unknown_key(*row, parameter.key)});
    } else if (std::any_of(parameters.begin(), parameters.begin() + static_cast<std::ptrdiff_t>(i),
                           same)) {
      faults.push_back({item + ".key", i, shown(parameter.key) + " occurs twice"});
    } else if (std::string what = value_fault(*known, parameter.value); !what.empty()) {
      faults.push_back({item + ".value", i, std::move(what)});
    }
  }
  for (const ParameterRow& wanted : row->parameters) {
    const auto matches = [&](const PolicyParameter& candidate) {
      return candidate.key == wanted.key;
    };
    if (wanted.required && std::none_of(parameters.begin(), parameters.end(), matches)) {
      faults.push_back(
          {"parameters",
           {},
           std::string(row->name) + " needs the parameter " + std::string(wanted.key)});
    }
  }
  return faults;
}

Result<double> parse_number(std::string_view text, double min, double max) {
  const std::string wanted =
      "must be a number from " + bound(min) + " to " + bound(max) + ", not " + shown(text);
  if (!is_number(text)) return Error(Code::kInvalid, wanted);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  if (!(value >= min && value <= max)) return Error(Code::kInvalid, wanted);
  return value;
}

Result<std::vector<std::string>> parse_text_list(std::string_view text) {
  if (!codec::is_utf8(text)) return Error(Code::kInvalid, "must be UTF-8");
  std::vector<std::string> items;
  const std::string whole(trim(text));
  if (whole.starts_with('[')) {
    const auto json = codec::parse_json(whole, {.depth_max = 2});
    if (!json.ok())
      return Error(Code::kInvalid,
                   "begins with '[' and is not a JSON list of strings: " + json.error().message());
    for (const codec::Json& item : json->as_array()) {
      if (!item.is_string())
        return Error(Code::kInvalid, "begins with '[' and is not a JSON list of strings");
      items.emplace_back(trim(item.as_string()));
    }
  } else if (!whole.empty()) {
    for (std::size_t at = 0; at <= whole.size();) {
      const std::size_t comma = std::min(whole.find(',', at), whole.size());
      items.emplace_back(trim(std::string_view(whole).substr(at, comma - at)));
      at = comma + 1;
    }
  }
  if (items.empty()) return Error(Code::kInvalid, "must not be empty");
  if (items.size() > kTextListItemsMax)
    return Error(Code::kInvalid,
                 "must have at most " + std::to_string(kTextListItemsMax) + " items");
  for (const std::string& item : items) {
    if (item.empty()) return Error(Code::kInvalid, "has an empty item");
  }
  return items;
}

}  // namespace varda::tiers
