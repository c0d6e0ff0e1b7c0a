//! The schema that Avro records were written with: JSON in, a table of types out, in which a type
//! names its parts by their place, so that a type may contain itself.

use std::collections::BTreeMap;

use serde_json::Value;

/// Place of a type in the table.
pub type TypeId = usize;

#[derive(Clone, Debug, PartialEq)]
pub enum AvroType {
    Null,
    Boolean,
    Int(Option<Logical>),
    Long(Option<Logical>),
    Float,
    Double,
    /// With scale, if it is a decimal.
    Bytes(Option<(u8, i8)>),
    String,
    Fixed(usize, Option<(u8, i8)>),
    Enum(Vec<String>),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Vec<(String, TypeId)>),
}

/// A type, and what those who pass over its values have to know.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    avro: AvroType,
    /// Its values take no byte: a record may hold any number of them, in one of which there may be
    /// any number of others.
    takes_nothing: bool,
    /// Of a record: the types of the fields whose values take bytes, in order.
    passed: Vec<TypeId>,
}

/// The meaning of a number (Avro's logical types).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logical {
    Date,
    /// Units in a second; whether it is of UTC or of no zone.
    Timestamp(i64, bool),
}

/// All types of a schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AvroSchema {
    types: Vec<Entry>,
    names: BTreeMap<String, TypeId>,
    pub root: TypeId,
}

impl AvroSchema {
    /// Errors: a sentence.
    pub fn parse(text: &str) -> Result<AvroSchema, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut schema = AvroSchema::default();
        schema.root = schema.add(&json, "")?;
        Ok(schema)
    }

    pub fn get(&self, id: TypeId) -> &AvroType {
        self.types
            .get(id)
            .map_or(&AvroType::Null, |entry| &entry.avro)
    }

    /// True of a type whose values take no byte.
    pub fn takes_nothing(&self, id: TypeId) -> bool {
        self.types.get(id).is_none_or(|entry| entry.takes_nothing)
    }

    /// The types of a record's fields that take bytes.
    pub fn passed(&self, id: TypeId) -> &[TypeId] {
        self.types.get(id).map_or(&[], |entry| &entry.passed)
    }

    fn push(&mut self, avro: AvroType) -> TypeId {
        let entry = self.entry(avro);
        self.types.push(entry);
        self.types.len() - 1
    }

    /// The types within are in the table already. One that is not whole yet contains this one, and
    /// takes bytes or is none that any bytes could be.
    fn entry(&self, avro: AvroType) -> Entry {
        let passed: Vec<TypeId> = match &avro {
            AvroType::Record(fields) => {
                let types = fields.iter().map(|(_, id)| *id);
                types.filter(|id| !self.takes_nothing(*id)).collect()
            }
            _ => Vec::new(),
        };
        let takes_nothing = match &avro {
            AvroType::Record(_) => passed.is_empty(),
            AvroType::Null | AvroType::Fixed(0, _) => true,
            _ => false,
        };
        Entry {
            avro,
            takes_nothing,
            passed,
        }
    }

    /// `namespace` is the one that names without a dot are of.
    fn add(&mut self, json: &Value, namespace: &str) -> Result<TypeId, String> {
        match json {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.add(branch, namespace));
                let branches = branches.collect::<Result<Vec<TypeId>, String>>()?;
                Ok(self.push(AvroType::Union(branches)))
            }
            Value::Object(_) => self.complex(json, namespace),
            _ => Err(format!("{json} is no type")),
        }
    }

    fn named(&mut self, name: &str, namespace: &str) -> Result<TypeId, String> {
        let primitive = match name {
            "null" => AvroType::Null,
            "boolean" => AvroType::Boolean,
            "int" => AvroType::Int(None),
            "long" => AvroType::Long(None),
            "float" => AvroType::Float,
            "double" => AvroType::Double,
            "bytes" => AvroType::Bytes(None),
            "string" => AvroType::String,
            _ => {
                let found = self.names.get(&full_name(name, namespace));
                let found = found.or_else(|| self.names.get(name));
                return found
                    .copied()
                    .ok_or_else(|| format!("type '{name}' is not defined"));
            }
        };
        Ok(self.push(primitive))
    }

    fn complex(&mut self, json: &Value, namespace: &str) -> Result<TypeId, String> {
        let part = |name: &str| {
            json.get(name)
                .ok_or_else(|| format!("a type has no '{name}': {json}"))
        };
        let kind = match part("type")? {
            Value::String(kind) => kind.as_str(),
            nested => return self.add(nested, namespace),
        };
        match kind {
            "array" => {
                let items = self.add(part("items")?, namespace)?;
                Ok(self.push(AvroType::Array(items)))
            }
            "map" => {
                let values = self.add(part("values")?, namespace)?;
                Ok(self.push(AvroType::Map(values)))
            }
            "record" | "error" | "enum" | "fixed" => {
                let name = part("name")?.as_str().ok_or("a name is no string")?;
                let own = json.get("namespace").and_then(Value::as_str);
                let full = full_name(name, own.unwrap_or(namespace));
                let namespace = full.rsplit_once('.').map_or("", |(before, _)| before);
                // A place for the type, which its own fields may name.
                let id = self.push(AvroType::Record(Vec::new()));
                if let Some(place) = self.types.get_mut(id) {
                    place.takes_nothing = false;
                }
                self.names.insert(full.clone(), id);
                let built = self.named_type(kind, json, namespace)?;
                let entry = self.entry(built);
                if let Some(place) = self.types.get_mut(id) {
                    *place = entry;
                }
                Ok(id)
            }
            name => {
                let id = self.named(name, namespace)?;
                let built = logical(self.get(id), json);
                Ok(match built {
                    Some(built) => self.push(built),
                    None => id,
                })
            }
        }
    }

    fn named_type(
        &mut self,
        kind: &str,
        json: &Value,
        namespace: &str,
    ) -> Result<AvroType, String> {
        let list = |name: &str| {
            let found = json.get(name).and_then(Value::as_array);
            found.ok_or_else(|| format!("a type has no list '{name}': {json}"))
        };
        match kind {
            "enum" => {
                let symbols = list("symbols")?.iter();
                let symbols = symbols.map(|symbol| symbol.as_str().map(str::to_owned));
                let symbols = symbols.collect::<Option<Vec<String>>>();
                Ok(AvroType::Enum(symbols.ok_or("a symbol is no string")?))
            }
            "fixed" => {
                let size = json.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or("a fixed type has no size")?;
                Ok(AvroType::Fixed(size, decimal(json)))
            }
            _ => {
                let mut fields = Vec::new();
                for field in list("fields")? {
                    let name = field.get("name").and_then(Value::as_str);
                    let name = name.ok_or("a field has no name")?;
                    if fields.iter().any(|(earlier, _)| earlier == name) {
                        return Err(format!("a record has the field '{name}' twice"));
                    }
                    let declared = field.get("type");
                    let declared = declared.ok_or_else(|| format!("field '{name}' has no type"))?;
                    fields.push((name.to_owned(), self.add(declared, namespace)?));
                }
                Ok(AvroType::Record(fields))
            }
        }
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

/// The type with the meaning that its `logicalType` gives it; one that is not known has none.
fn logical(plain: &AvroType, json: &Value) -> Option<AvroType> {
    let name = json.get("logicalType").and_then(Value::as_str)?;
    Some(match (plain, name) {
        (AvroType::Int(_), "date") => AvroType::Int(Some(Logical::Date)),
        (AvroType::Long(_), "timestamp-millis") => long(1000, true),
        (AvroType::Long(_), "timestamp-micros") => long(1_000_000, true),
        (AvroType::Long(_), "local-timestamp-millis") => long(1000, false),
        (AvroType::Long(_), "local-timestamp-micros") => long(1_000_000, false),
        (AvroType::Bytes(_), "decimal") => AvroType::Bytes(decimal(json)),
        _ => return None,
    })
}

fn long(units: i64, zoned: bool) -> AvroType {
    AvroType::Long(Some(Logical::Timestamp(units, zoned)))
}

fn decimal(json: &Value) -> Option<(u8, i8)> {
    if json.get("logicalType").and_then(Value::as_str) != Some("decimal") {
        return None;
    }
    let precision = json.get("precision").and_then(Value::as_u64)?;
    let scale = json.get("scale").map_or(Some(0), Value::as_u64)?;
    Some((u8::try_from(precision).ok()?, i8::try_from(scale).ok()?))
}
