// Labels: texts become classes or targets (Dataset in samples.h has the rules).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "samples/samples.h"

namespace varda::samples::internal {

/// Empty, NA or nan, in any case.
bool is_missing(std::string_view cell);
/// A decimal number, also with blanks around it and '+' before it; nothing for other text, and
/// beyond the range of double. "inf" and "nan" are no numbers.
std::optional<double> parse_number(std::string_view cell);
/// The shortest text of a number: "3" for 3.0.
std::string number_text(double value);

/// First collects the labels of all samples, then converts them. After settle() it is immutable.
class Labels {
 public:
  /// `columns`: the names of the label's columns; one cell of a label for each.
  Labels(Task task, std::vector<std::string> classes, std::vector<std::string> columns = {""});

  /// Counts the label of one sample. kInvalid: the reason, without the place.
  Status add(std::span<const std::string_view> cells);
  /// Several samples with the same label.
  Status add(std::string_view cell, std::uint64_t samples = 1);
  /// Ends the collection: sorts the classes.
  void settle();

  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  std::size_t outputs() const;
  /// Appends the label of one sample to labels or targets.
  Status append(std::span<const std::string_view> cells, Batch& out) const;

 private:
  Status add_cells(std::span<const std::string_view> cells, std::uint64_t samples);
  Status add_class(std::string_view name, std::uint64_t samples);
  Result<std::size_t> find_class(std::string_view name) const;

  Task task_;
  std::vector<std::string> columns_;
  bool given_ = false;    // the classes are given, not collected
  bool numbered_ = true;  // a class may be given by its number: no class has a number as its name
  std::vector<std::string> classes_;
  std::map<std::string, std::size_t, std::less<>> numbers_;      // of the classes, by name
  std::map<std::string, std::uint64_t, std::less<>> collected_;  // samples by name
  std::vector<std::uint64_t> counts_;
  std::vector<std::size_t> class_of_column_;  // kMultiLabel with several columns
};

}  // namespace varda::samples::internal
