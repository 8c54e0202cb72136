// csv and tsv: one table from one file, or from the files of a folder.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "codec/text.h"
#include "dataset/header.h"
#include "samples/internal/formats.h"
#include "samples/internal/input.h"
#include "samples/internal/record_index.h"

namespace varda::samples::internal {
namespace {

std::string column_text(std::string_view name) { return codec::quote(codec::clipped(name, 64)); }

class Table final : public Readable {
 public:
  Table(os::ReadableTree& tree, const TableDialect& dialect, Options options)
      : Readable(Labels(options.task, {})),
        index_(tree, dialect),
        dialect_(dialect),
        options_(std::move(options)) {}

  Status read_files(const Source& source, std::string_view extension);

  std::size_t size() const override { return index_.size(); }
  std::string place(std::size_t index) const override { return index_.place(index); }
  std::vector<double> fill() const override { return fill_; }
  Result<std::string> line(std::size_t index) const override {
    RecordIndex::Reader records(index_);
    TRY(const std::string_view text, records.text(index));
    return std::string(text);
  }
  std::string header() const override {
    std::string out;
    for (std::size_t i = 0; i < names_.size(); ++i)
      out += (i > 0 ? std::string(1, dialect_.delimiter) : "") + quoted(names_[i]);
    return out;
  }
  std::vector<std::string> features() const override {
    std::vector<std::string> out;
    for (const std::size_t column : features_) out.push_back(column_name(column));
    return out;
  }

 private:
  class Reader;
  /// The field as RFC 4180 writes it.
  std::string quoted(const std::string& field) const {
    if (!dialect_.quotes || field.find_first_of("\",\r\n") == std::string::npos) return field;
    std::string out = "\"";
    for (const char c : field) out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
  }
  Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const override {
    return input_->allocate(count, memory);
  }
  std::unique_ptr<SampleReader> reader() const override;

  Result<bool> add_record(const Record& record, std::size_t bytes, bool first);
  Status choose_columns();
  Status bind_input(const Record& first);
  Result<std::size_t> find_column(std::string_view wanted, std::string_view setting) const;
  Status add_row(const Record& record);
  Error failure(std::size_t feature, std::string_view why) const;
  Result<std::optional<double>> number(const Record& record, std::size_t i) const;
  Result<std::optional<double>> feature(const Record& record, std::size_t i) const;
  void label_cells(const Record& record, std::vector<std::string_view>& cells) const;
  std::string column_name(std::size_t column) const {
    return names_.empty() ? std::to_string(column + 1) : names_[column];
  }

  RecordIndex index_;
  const TableDialect dialect_;
  const Options options_;
  std::vector<std::string> names_;  // of the header; empty: none
  std::size_t columns_ = 0;         // 0: no record yet
  std::vector<std::size_t> features_, labels_at_;
  std::optional<NumberInput> input_;  // from the first row on
  std::vector<double> sums_;
  std::vector<std::uint64_t> present_;
  std::vector<double> fill_;
  std::vector<std::string_view> cells_;  // while the rows are read
};

Result<bool> Table::add_record(const Record& record, std::size_t bytes, bool first) {
  if (columns_ != 0 && record.size() != columns_)
    return Error(Code::kInvalid, std::to_string(record.size()) +
                                     (record.size() == 1 ? " field" : " fields") +
                                     " where the first record has " + std::to_string(columns_));
  if (first) {
    std::vector<std::string> fields;
    for (std::size_t i = 0; i < record.size(); ++i) fields.emplace_back(record[i]);
    const bool header = options_.header == dataset::Header::kYes ||
                        (options_.header == dataset::Header::kAuto &&
                         bytes <= dataset::kHeaderBytesMax && dataset::names_columns(fields));
    for (std::string& field : fields) field = trim(field);
    if (columns_ == 0) {
      columns_ = record.size();
      if (header) names_ = std::move(fields);
      TRY_VOID(choose_columns());
    } else if (header == names_.empty() || (header && fields != names_)) {
      return Error(Code::kInvalid, "the columns differ from the columns of the first file");
    }
    if (header) return false;
  }
  TRY_VOID(add_row(record));
  return true;
}

Result<std::size_t> Table::find_column(std::string_view wanted, std::string_view setting) const {
  wanted = trim(wanted);
  const auto at = std::find(names_.begin(), names_.end(), wanted);
  if (at != names_.end()) return static_cast<std::size_t>(at - names_.begin());
  if (const auto number = parse_integer<std::size_t>(wanted);
      number && *number >= 1 && *number <= columns_)
    return *number - 1;
  std::string has =
      names_.empty() ? "no header, and columns 1 to " + std::to_string(columns_) : "the columns ";
  for (std::size_t i = 0; i < std::min<std::size_t>(names_.size(), 8); ++i)
    has += (i > 0 ? ", " : "") + column_text(names_[i]);
  if (names_.size() > 8) has += ", …";
  return Error(Code::kInvalid, std::string(setting) + ": there is no column " +
                                   column_text(wanted) + "; the table has " + has);
}

Status Table::choose_columns() {
  if (columns_ < 2)
    return Error(Code::kInvalid,
                 "one column, but a table needs features and a label; fields have " +
                     std::string(dialect_.delimiter == ',' ? "commas" : "tabs") + " between them");
  if (options_.label.empty()) {
    labels_at_ = {columns_ - 1};
  } else if (const auto whole = find_column(options_.label, "labelColumn"); whole.ok()) {
    labels_at_ = {*whole};
  } else {
    for (const std::string_view one : split(options_.label, ',')) {
      TRY(const std::size_t column, find_column(one, "labelColumn"));
      labels_at_.push_back(column);
    }
  }
  if (options_.task == Task::kClassification && labels_at_.size() > 1)
    return Error(Code::kInvalid,
                 "labelColumn names several columns, but a classification has one label; name one "
                 "column, or set task: multilabel");
  const auto is_label = [&](std::size_t column) {
    return std::find(labels_at_.begin(), labels_at_.end(), column) != labels_at_.end();
  };
  for (const std::string& one : options_.features) {
    TRY(const std::size_t column, find_column(one, "featureColumns"));
    if (is_label(column))
      return Error(Code::kInvalid, "the column " + column_text(column_name(column)) +
                                       " is both a label and a feature; remove it from one");
    features_.push_back(column);
  }
  if (features_.empty()) {
    for (std::size_t column = 0; column < columns_; ++column) {
      if (!is_label(column)) features_.push_back(column);
    }
  }
  std::vector<std::string> label_names;
  for (const std::size_t column : labels_at_) label_names.push_back(column_name(column));
  labels_ = Labels(options_.task, options_.classes, std::move(label_names));
  sums_.resize(features_.size());
  present_.resize(features_.size());
  return {};
}

/// Compares the columns with the model. A table without rows, or with text in the first row, has
/// another mistake, which is reported instead.
Status Table::bind_input(const Record& first) {
  for (std::size_t i = 0; i < features_.size(); ++i) TRY_VOID(number(first, i));
  const std::string count = std::to_string(features_.size()) +
                            (features_.size() == 1 ? " feature column" : " feature columns");
  auto input = NumberInput::bind(options_.input, {static_cast<std::int64_t>(features_.size())});
  if (!input.ok())
    return Error(input.error().code(),
                 "the table has " + count + ": " + input.error().message() +
                     "; choose the columns with featureColumns and labelColumn");
  if (!options_.fill.empty() && options_.fill.size() != features_.size())
    return Error(Code::kInvalid, "the table has " + count + ", but the training data have " +
                                     std::to_string(options_.fill.size()) +
                                     "; the evaluation needs the same columns");
  input_ = std::move(*input);
  return {};
}

Error Table::failure(std::size_t feature, std::string_view why) const {
  return {Code::kInvalid,
          "column " + column_text(column_name(features_[feature])) + ": " + std::string(why)};
}

Result<std::optional<double>> Table::number(const Record& record, std::size_t i) const {
  const std::string_view cell = record[features_[i]];
  auto value = parse_number(cell);
  if (value || is_missing(cell)) return value;
  return failure(i, column_text(trim(cell)) +
                        " is not a number; correct it, or leave the column out with "
                        "featureColumns");
}

Result<std::optional<double>> Table::feature(const Record& record, std::size_t i) const {
  TRY(const auto value, number(record, i));
  if (!value) return value;
  if (auto checked = input_->check(*value); !checked.ok())
    return failure(i, checked.error().message());
  return value;
}

void Table::label_cells(const Record& record, std::vector<std::string_view>& cells) const {
  cells.clear();
  for (const std::size_t column : labels_at_) cells.push_back(record[column]);
}

Status Table::add_row(const Record& record) {
  if (!input_) TRY_VOID(bind_input(record));
  for (std::size_t i = 0; i < features_.size(); ++i) {
    TRY(const auto value, feature(record, i));
    if (!value) continue;
    sums_[i] += *value;
    ++present_[i];
  }
  label_cells(record, cells_);
  return labels_.add(cells_);
}

Status Table::read_files(const Source& source, std::string_view extension) {
  Fingerprint hash;
  TRY_VOID(index_.add(source.ctx, source.path, source.is_folder, extension, hash,
                      [&](const Record& record, std::size_t bytes, bool first) {
                        return add_record(record, bytes, first);
                      }));
  if (size() == 0)
    return Error(Code::kInvalid, source.name() + " has no rows; training needs at least one");
  labels_.settle();
  fingerprint_ = hash.text();
  fill_ = options_.fill;
  for (const double value : fill_) TRY_VOID(input_->check(value));
  if (!fill_.empty()) return {};
  for (std::size_t i = 0; i < features_.size(); ++i) {
    if (present_[i] == 0)
      return Error(Code::kInvalid, "the column " + column_text(column_name(features_[i])) +
                                       " has no value; leave it out with featureColumns");
    const double mean = sums_[i] / static_cast<double>(present_[i]);
    // A mean of integers may be no value of the type.
    fill_.push_back(input_->check(mean).ok() ? mean : std::nearbyint(mean));
    TRY_VOID(input_->check(fill_.back()));
  }
  return {};
}

class Table::Reader final : public SampleReader {
 public:
  explicit Reader(const Table& table) : table_(table), records_(table.index_) {}

  Status read(const Place& place, Batch& out) override {
    TRY(const Record* found, records_.read(place.index));
    const Record& record = *found;
    if (record.size() != table_.columns_)
      return Error(Code::kConflict, "the file changed during the training; start again");
    values_.clear();
    for (std::size_t i = 0; i < table_.features_.size(); ++i) {
      TRY(const auto value, table_.feature(record, i));
      values_.push_back(value.value_or(table_.fill_[i]));
    }
    table_.input_->write(values_, out.input, place.row);
    table_.label_cells(record, cells_);
    return table_.labels_.append(cells_, out);
  }

 private:
  const Table& table_;
  RecordIndex::Reader records_;
  std::vector<double> values_;
  std::vector<std::string_view> cells_;
};

std::unique_ptr<SampleReader> Table::reader() const { return std::make_unique<Reader>(*this); }

Opened open_table(Source source, const TableDialect& dialect, std::string_view extension) {
  auto table = std::make_shared<Table>(source.tree, dialect, source.options);
  TRY_VOID(table->read_files(source, extension));
  return std::shared_ptr<const Dataset>(std::move(table));
}

}  // namespace

Opened open_csv(Source source) {
  return open_table(std::move(source), {.delimiter = ',', .quotes = true}, ".csv");
}

Opened open_tsv(Source source) {
  return open_table(std::move(source), {.delimiter = '\t', .quotes = false}, ".tsv");
}

}  // namespace varda::samples::internal
