//! The evaluation of a template. minijinja reads the template and has the values; their operations
//! are called here, one by one, so that each is charged by the bytes that it goes through.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what the language does not let in is not evaluated either"
)]

use std::collections::BTreeMap;

use minijinja::Value as Shown;
use minijinja::machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, Stmt, UnaryOpKind};
use minijinja::value::{DynObject, ObjectRepr, ValueKind};

use super::OUTPUT_BYTES_MAX;
use super::filters::{apply, items_of, passes, text_of};
use super::work::{STEP, Spent, Work};

/// How many keys a lookup by a text may compare it with.
const KEYS: usize = 20;

/// What it costs to say what a loop knows about its round.
const ROUND: u64 = 16 * STEP;

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Fault {
    /// Something is read that does not exist.
    Undefined,
    /// It takes more work than one rendering may.
    Work,
    /// The text gets too long.
    Long,
    /// Anything else.
    Wrong(String),
}

impl From<Spent> for Fault {
    fn from(_: Spent) -> Self {
        Self::Work
    }
}

impl From<minijinja::Error> for Fault {
    fn from(error: minijinja::Error) -> Self {
        match error.kind() {
            minijinja::ErrorKind::UndefinedError => Self::Undefined,
            kind => Self::Wrong(format!("{kind}: {}", error.detail().unwrap_or_default())),
        }
    }
}

fn outside() -> Fault {
    Fault::Wrong("this is not possible here".to_owned())
}

/// A variable of a loop.
enum Bound {
    Value(Shown),
    /// What the loop says about its current round, of how many.
    Round(usize, Option<usize>),
}

/// One rendering.
pub(super) struct Evaluation<'e> {
    pub(super) names: BTreeMap<String, Shown>,
    pub(super) work: &'e Work<'e>,
    pub(super) out: String,
    /// The line of the last expression, for messages.
    pub(super) line: usize,
    /// The variables of the loops, innermost last.
    bound: Vec<(&'e str, Bound)>,
}

impl<'e> Evaluation<'e> {
    pub(super) fn new(names: BTreeMap<String, Shown>, work: &'e Work<'e>) -> Self {
        Self {
            names,
            work,
            out: String::new(),
            line: 1,
            bound: Vec::new(),
        }
    }

    pub(super) fn statements<'a: 'e>(&mut self, statements: &'e [Stmt<'a>]) -> Result<(), Fault> {
        statements.iter().try_for_each(|one| self.statement(one))
    }

    pub(super) fn statement<'a: 'e>(&mut self, statement: &'e Stmt<'a>) -> Result<(), Fault> {
        self.work.charge(STEP)?;
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitRaw(raw) => self.emit(raw.raw),
            Stmt::EmitExpr(emit) => {
                let value = self.value(&emit.expr)?;
                let text = text_of(&value, self.work)?;
                self.emit(&text)
            }
            Stmt::IfCond(cond) => {
                let body = if self.truth(&cond.expr)? {
                    &cond.true_body
                } else {
                    &cond.false_body
                };
                self.statements(body)
            }
            Stmt::ForLoop(each) => {
                let over = self.value(&each.iter)?;
                let items = items_of(&over, self.work)?;
                // How many characters a text has is not told.
                let count = over.len().filter(|_| over.kind() != ValueKind::String);
                let outside = self.bound.len();
                let mut any = false;
                for (place, item) in items.enumerate() {
                    any = true;
                    self.work.charge(STEP)?;
                    self.bound.push(("loop", Bound::Round(place, count)));
                    self.bind(&each.target, item)?;
                    self.statements(&each.body)?;
                    self.bound.truncate(outside);
                }
                if any {
                    return Ok(());
                }
                self.statements(&each.else_body)
            }
            _ => Err(outside()),
        }
    }

    fn emit(&mut self, text: &str) -> Result<(), Fault> {
        self.work.bytes(text.len())?;
        if self.out.len() + text.len() > OUTPUT_BYTES_MAX {
            return Err(Fault::Long);
        }
        self.out.push_str(text);
        Ok(())
    }

    fn bind<'a: 'e>(&mut self, target: &'e Expr<'a>, value: Shown) -> Result<(), Fault> {
        let parts = match target {
            Expr::Var(var) => {
                self.bound.push((var.id, Bound::Value(value)));
                return Ok(());
            }
            Expr::List(list) => &list.items,
            Expr::Tuple(tuple) => &tuple.items,
            _ => return Err(outside()),
        };
        let is_list = value
            .as_object()
            .is_some_and(|object| object.repr() != ObjectRepr::Plain);
        if !is_list {
            return Err(Fault::Wrong("an item cannot be unpacked".to_owned()));
        }
        if value.len() != Some(parts.len()) {
            let detail = format!("an item has not the {} parts to unpack", parts.len());
            return Err(Fault::Wrong(detail));
        }
        for (part, value) in parts.iter().zip(value.try_iter()?) {
            self.bind(part, value)?;
        }
        Ok(())
    }

    fn truth<'a: 'e>(&mut self, expression: &'e Expr<'a>) -> Result<bool, Fault> {
        Ok(self.judged(expression)?.1)
    }

    /// The value of an expression, and whether it is true. One that does not exist is an error; a
    /// choice without an `else` is false.
    fn judged<'a: 'e>(&mut self, expression: &'e Expr<'a>) -> Result<(Shown, bool), Fault> {
        let value = self.value(expression)?;
        if value.is_undefined() && !may_be_absent(expression) {
            return Err(Fault::Undefined);
        }
        let is_true = value.is_true();
        Ok((value, is_true))
    }

    pub(super) fn value<'a: 'e>(&mut self, expression: &'e Expr<'a>) -> Result<Shown, Fault> {
        self.work.charge(STEP)?;
        self.line = expression.span().start_line as usize;
        match expression {
            Expr::Var(var) => self.named(var.id),
            Expr::Const(constant) => {
                self.work
                    .bytes(constant.value.as_str().map_or(0, str::len))?;
                Ok(constant.value.clone())
            }
            Expr::UnaryOp(op) => match op.op {
                UnaryOpKind::Not => Ok((!self.truth(&op.expr)?).into()),
                UnaryOpKind::Neg => negative(&self.value(&op.expr)?),
            },
            Expr::BinOp(op) => match op.op {
                BinOpKind::ScAnd | BinOpKind::ScOr => {
                    let (left, is_true) = self.judged(&op.left)?;
                    if is_true == matches!(op.op, BinOpKind::ScOr) {
                        return Ok(left);
                    }
                    self.value(&op.right)
                }
                other => {
                    let left = self.value(&op.left)?;
                    let right = self.value(&op.right)?;
                    let how = comparison(other)?;
                    Ok(self.compares(how, &left, &right)?.into())
                }
            },
            Expr::Compare(compare) => {
                let mut left = self.value(&compare.expr)?;
                for op in &compare.ops {
                    let right = self.value(&op.expr)?;
                    if !self.compares(op.op, &left, &right)? {
                        return Ok(false.into());
                    }
                    left = right;
                }
                Ok(true.into())
            }
            Expr::IfExpr(choice) => match (self.truth(&choice.test_expr)?, &choice.false_expr) {
                (true, _) => self.value(&choice.true_expr),
                (false, Some(other)) => self.value(other),
                (false, None) => Ok(Shown::UNDEFINED),
            },
            Expr::Filter(filter) => {
                let of = filter.expr.as_ref().ok_or_else(outside)?;
                let value = self.value(of)?;
                let arguments = self.arguments(&filter.args)?;
                apply(filter.name, &value, &arguments, self.work)
            }
            Expr::Test(test) => {
                let value = self.value(&test.expr)?;
                if !test.args.is_empty() {
                    return Err(Fault::Wrong(format!(
                        "too many arguments for {}",
                        test.name
                    )));
                }
                Ok(passes(test.name, &value)?.into())
            }
            Expr::GetAttr(get) => {
                let value = self.value(&get.expr)?;
                Ok(value.get_attr(get.name)?)
            }
            Expr::GetItem(get) => {
                let value = self.value(&get.expr)?;
                let key = self.value(&get.subscript_expr)?;
                self.work.bytes(value.as_str().map_or(0, str::len) * 2)?;
                self.looked_up(&key)?;
                Ok(value.get_item(&key)?)
            }
            Expr::List(list) => {
                let items: Result<Vec<_>, _> =
                    list.items.iter().map(|one| self.value(one)).collect();
                Ok(Shown::from(items?))
            }
            _ => Err(outside()),
        }
    }

    fn arguments<'a: 'e>(&mut self, arguments: &'e [CallArg<'a>]) -> Result<Vec<Shown>, Fault> {
        let each = arguments.iter().map(|one| match one {
            CallArg::Pos(expression) => self.value(expression),
            _ => Err(outside()),
        });
        each.collect()
    }

    fn named(&self, name: &str) -> Result<Shown, Fault> {
        match self.bound.iter().rev().find(|(known, _)| *known == name) {
            Some((_, Bound::Value(value))) => Ok(value.clone()),
            Some((_, Bound::Round(place, count))) => {
                self.work.charge(ROUND)?;
                Ok(round(*place, *count))
            }
            None => Ok(self.names.get(name).cloned().unwrap_or_default()),
        }
    }

    /// Charges for the lookup of a key.
    fn looked_up(&self, key: &Shown) -> Result<(), Fault> {
        match key.as_str() {
            Some(key) => self.work.bytes(key.len() * KEYS)?,
            None => self.work.all_of(key)?,
        }
        Ok(())
    }

    fn compares(&self, how: CompareOpKind, left: &Shown, right: &Shown) -> Result<bool, Fault> {
        if left.is_undefined() || right.is_undefined() {
            return Err(Fault::Undefined);
        }
        if let CompareOpKind::In | CompareOpKind::NotIn = how {
            let is_in = self.contains(right, left)?;
            return Ok(is_in == matches!(how, CompareOpKind::In));
        }
        if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
            self.work.bytes(left.len().min(right.len()))?;
        } else {
            self.work.all_of(left)?;
            self.work.all_of(right)?;
        }
        Ok(match how {
            CompareOpKind::Eq => left == right,
            CompareOpKind::Ne => left != right,
            CompareOpKind::Lt => left < right,
            CompareOpKind::Lte => left <= right,
            CompareOpKind::Gt => left > right,
            CompareOpKind::Gte => left >= right,
            CompareOpKind::In | CompareOpKind::NotIn => return Err(outside()),
        })
    }

    fn contains(&self, whole: &Shown, part: &Shown) -> Result<bool, Fault> {
        self.work.all_of(part)?;
        if let Some(text) = whole.as_str() {
            self.work.bytes(text.len() * 2)?;
            return Ok(if let Some(part) = part.as_str() {
                text.contains(part)
            } else {
                self.work.all_of(part)?;
                text.contains(&part.to_string())
            });
        }
        match whole.as_object().map(DynObject::repr) {
            Some(ObjectRepr::Plain) => Ok(false),
            Some(ObjectRepr::Map) => {
                self.looked_up(part)?;
                Ok(!whole.get_item(part)?.is_undefined())
            }
            Some(_) => {
                for one in items_of(whole, self.work)? {
                    if self.compares(CompareOpKind::Eq, &one, part)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            None => Err(Fault::Wrong("nothing can be in this value".to_owned())),
        }
    }
}

fn comparison(op: BinOpKind) -> Result<CompareOpKind, Fault> {
    Ok(match op {
        BinOpKind::Eq => CompareOpKind::Eq,
        BinOpKind::Ne => CompareOpKind::Ne,
        BinOpKind::Lt => CompareOpKind::Lt,
        BinOpKind::Lte => CompareOpKind::Lte,
        BinOpKind::Gt => CompareOpKind::Gt,
        BinOpKind::Gte => CompareOpKind::Gte,
        BinOpKind::In => CompareOpKind::In,
        _ => return Err(outside()),
    })
}

fn negative(value: &Shown) -> Result<Shown, Fault> {
    let wrong = || Fault::Wrong("only numbers have a negative".to_owned());
    if value.is_undefined() {
        return Err(Fault::Undefined);
    }
    if value.kind() != ValueKind::Number {
        return Err(wrong());
    }
    if let Some(whole) = value.as_i64() {
        return whole.checked_neg().map(Shown::from).ok_or_else(wrong);
    }
    let number = f64::try_from(value.clone()).map_err(|_| wrong())?;
    Ok((-number).into())
}

/// What a loop says about its current round.
fn round(place: usize, count: Option<usize>) -> Shown {
    let left = |less: usize| match count {
        Some(count) => Shown::from(count.saturating_sub(place + less)),
        None => Shown::UNDEFINED,
    };
    Shown::from_pairs([
        ("index0", Shown::from(place)),
        ("index", (place + 1).into()),
        ("length", count.map_or(Shown::UNDEFINED, Shown::from)),
        ("revindex", left(0)),
        ("revindex0", left(1)),
        ("first", (place == 0).into()),
        ("last", count.is_some_and(|count| place + 1 >= count).into()),
        ("depth", 1.into()),
        ("depth0", 0.into()),
    ])
}

/// Whether the value that does not exist stands for nothing here: `x if condition` without an `else`.
fn may_be_absent(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::IfExpr(choice) if choice.false_expr.is_none())
}
