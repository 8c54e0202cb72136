#include "samples/internal/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "codec/text.h"

namespace varda::samples::internal {
namespace {

constexpr std::string_view kMissingLabel =
    "the label is missing; add the label, or remove the sample";

/// Tables of numbers often write integers as "1.0".
std::string_view class_name(std::string_view cell) {
  cell = trim(cell);
  const std::size_t point = cell.find('.');
  if (point == std::string_view::npos || point + 1 == cell.size() ||
      cell.find_first_not_of('0', point + 1) != std::string_view::npos)
    return cell;
  const std::string_view whole = cell.substr(0, point);
  return parse_integer<std::int64_t>(whole) ? whole : cell;
}

std::string shown(std::string_view text) { return codec::quote(codec::clipped(text, 64)); }

/// The names between ';' or '|'.
std::vector<std::string_view> names_of(std::string_view cell) {
  std::vector<std::string_view> out;
  while (!trim(cell).empty()) {
    const std::size_t end = std::min(cell.find_first_of(";|"), cell.size());
    if (const auto name = class_name(cell.substr(0, end)); !name.empty()) out.push_back(name);
    cell.remove_prefix(std::min(end + 1, cell.size()));
  }
  return out;
}

Result<bool> parse_flag(std::string_view cell, const std::string& column) {
  const auto value = parse_number(cell);
  if (!value || (*value != 0 && *value != 1))
    return Error(Code::kInvalid,
                 "the label " + shown(column) + " must be 0 or 1, not " + shown(trim(cell)));
  return *value == 1;
}

Result<float> parse_target(std::string_view cell) {
  if (is_missing(cell)) return Error(Code::kInvalid, std::string(kMissingLabel));
  const auto value = parse_number(cell);
  if (!value || !std::isfinite(static_cast<float>(*value)))
    return Error(Code::kInvalid,
                 "the label " + shown(trim(cell)) + " is not a number, which a regression needs");
  return static_cast<float>(*value);
}

bool less_by_value(const std::string& a, const std::string& b) {
  const auto left = parse_number(a), right = parse_number(b);
  if (left && right && *left != *right) return *left < *right;
  if (left.has_value() != right.has_value()) return left.has_value();
  return a < b;
}

}  // namespace

bool is_missing(std::string_view cell) {
  cell = trim(cell);
  return cell.empty() || equal_ignoring_case(cell, "na") || equal_ignoring_case(cell, "nan");
}

std::optional<double> parse_number(std::string_view cell) {
  cell = trim(cell);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (cell.empty() || cell[0] == '+' || error != std::errc() || end != cell.data() + cell.size() ||
      !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::string number_text(double value) {
  char buffer[64];
  const bool integral = std::abs(value) < 1e15 && value == std::trunc(value);
  const auto [end, error] =
      integral ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<std::int64_t>(value))
               : std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, error == std::errc() ? end : buffer};
}

Labels::Labels(Task task, std::vector<std::string> classes, std::vector<std::string> columns)
    : task_(task), columns_(std::move(columns)), classes_(std::move(classes)) {
  if (task_ == Task::kRegression) classes_.clear();
  if (task_ == Task::kMultiLabel && columns_.size() > 1 && classes_.empty()) classes_ = columns_;
  given_ = !classes_.empty();
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    numbers_.emplace(classes_[i], i);
    if (parse_integer<std::int64_t>(classes_[i])) numbered_ = false;
  }
  counts_.resize(classes_.size());
  // Columns mean the classes of their names. Columns with other names follow the classes' order.
  const bool named = std::all_of(columns_.begin(), columns_.end(),
                                 [&](const std::string& name) { return numbers_.contains(name); });
  for (std::size_t i = 0; i < columns_.size(); ++i)
    class_of_column_.push_back(named ? numbers_.find(columns_[i])->second : i);
}

std::size_t Labels::outputs() const {
  return task_ == Task::kRegression ? columns_.size() : classes_.size();
}

Result<std::size_t> Labels::find_class(std::string_view name) const {
  if (const auto at = numbers_.find(name); at != numbers_.end()) return at->second;
  const auto number = parse_integer<std::int64_t>(name);
  const auto count = static_cast<std::int64_t>(classes_.size());
  if (given_ && numbered_ && number) {
    if (*number >= 0 && *number < count) return static_cast<std::size_t>(*number);
    return Error(Code::kInvalid, "the label " + std::string(name) + " is not between 0 and " +
                                     std::to_string(count - 1) + ", the numbers of the " +
                                     std::to_string(count) + " classes");
  }
  std::string some = join(std::span(classes_).first(std::min<std::size_t>(classes_.size(), 8)),
                          ", ", [](const std::string& text) { return shown(text); });
  if (classes_.size() > 8) some += ", …";
  return Error(Code::kInvalid,
               "the label " + shown(name) + " is none of the " + std::to_string(count) +
                   " classes (" + some +
                   "); correct the label, or set head.classes to train new classes");
}

Status Labels::add_class(std::string_view name, std::uint64_t samples) {
  if (name.empty() || is_missing(name)) return Error(Code::kInvalid, std::string(kMissingLabel));
  if (given_) {
    TRY(const std::size_t number, find_class(name));
    counts_[number] += samples;
    return {};
  }
  if (name.size() > dataset::kClassNameBytesMax)
    return Error(Code::kInvalid, "the label " + shown(name) + "… is longer than " +
                                     std::to_string(dataset::kClassNameBytesMax) + " bytes");
  const auto at = collected_.find(name);
  if (at != collected_.end()) {
    at->second += samples;
  } else if (collected_.size() >= dataset::kClassesMax) {
    return Error(Code::kInvalid,
                 "there are more than " + std::to_string(dataset::kClassesMax) +
                     " classes; choose another label column, or set task: regression");
  } else {
    collected_.emplace(name, samples);
  }
  return {};
}

Status Labels::add_cells(std::span<const std::string_view> cells, std::uint64_t samples) {
  if (task_ == Task::kRegression) {
    for (const std::string_view cell : cells) TRY_VOID(parse_target(cell));
    return {};
  }
  if (task_ == Task::kClassification) return add_class(class_name(cells[0]), samples);
  if (columns_.size() == 1) {
    if (!trim(cells[0]).empty() && is_missing(cells[0]))
      return Error(Code::kInvalid, std::string(kMissingLabel));
    for (const std::string_view name : names_of(cells[0])) TRY_VOID(add_class(name, samples));
    return {};
  }
  if (classes_.size() != columns_.size())
    return Error(Code::kInvalid, std::to_string(columns_.size()) + " label columns do not fit " +
                                     std::to_string(classes_.size()) + " classes");
  for (std::size_t i = 0; i < cells.size(); ++i) {
    TRY(const bool set, parse_flag(cells[i], columns_[i]));
    if (set) counts_[class_of_column_[i]] += samples;
  }
  return {};
}

Status Labels::add(std::span<const std::string_view> cells) { return add_cells(cells, 1); }

Status Labels::add(std::string_view cell, std::uint64_t samples) {
  return add_cells({&cell, 1}, samples);
}

void Labels::settle() {
  if (given_ || task_ == Task::kRegression) return;
  for (const auto& [name, samples] : collected_) classes_.push_back(name);
  std::sort(classes_.begin(), classes_.end(), less_by_value);
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    numbers_.emplace(classes_[i], i);
    counts_.push_back(collected_.find(classes_[i])->second);
  }
  collected_.clear();
}

Status Labels::append(std::span<const std::string_view> cells, Batch& out) const {
  switch (task_) {
    case Task::kRegression:
      for (const std::string_view cell : cells) {
        TRY(const float target, parse_target(cell));
        out.targets.push_back(target);
      }
      return {};
    case Task::kClassification: {
      TRY(const std::size_t number, find_class(class_name(cells[0])));
      out.labels.push_back(static_cast<std::int64_t>(number));
      return {};
    }
    case Task::kMultiLabel:
      break;
  }
  const std::size_t row = out.targets.size();
  out.targets.resize(row + classes_.size());
  if (columns_.size() == 1) {
    for (const std::string_view name : names_of(cells[0])) {
      TRY(const std::size_t number, find_class(name));
      out.targets[row + number] = 1;
    }
    return {};
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    TRY(const bool set, parse_flag(cells[i], columns_[i]));
    out.targets[row + class_of_column_[i]] = set ? 1.0f : 0.0f;
  }
  return {};
}

}  // namespace varda::samples::internal
